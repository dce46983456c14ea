package front

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/hub/link"
)

var update = flag.Bool("update", false, "write testdata/table.txt anew")

var links = []link.State{link.Unknown, link.Up, link.Failing, link.Relayed, link.Down}

// row is who answers a kind of request, by the state of the cloud.
func row(k Kind, coordinator link.State) string {
	text := ""
	for _, s := range []Situation{
		{CloudLink: link.Up}, {CloudLink: link.Failing}, {CloudLink: link.Relayed},
		{CloudLink: link.Down, HeartbeatsRelayed: true}, {CloudLink: link.Down},
	} {
		s.StandIn, s.CoordinatorLink = true, coordinator
		var names []string
		for _, a := range answerers(k, s) {
			names = append(names, a.String())
		}
		text += " " + strings.Join(names, ", ") + " |"
	}
	if hears := hears(k); hears != Nobody {
		text += " " + hears.String()
	}
	return text + " |"
}

// table is who answers what, and when.
func table() string {
	text := "| request | cloud up, or not known yet | failing | relayed | relayed, heartbeats only | down | hears the cloud |\n" +
		strings.Repeat("| --- ", 7) + "|\n"
	for k := range kindCount {
		if k == Refused {
			continue
		}
		with, without := row(k, link.Up), row(k, link.Down)
		if with == without {
			text += fmt.Sprintf("| %s |%s\n", k, with)
			continue
		}
		text += fmt.Sprintf("| %s; the coordinator is up |%s\n| %s; it is not |%s\n", k, with, k, without)
	}
	return text
}

// TestTable compares the whole table with the one that is kept, and that one with the page that shows it.
func TestTable(t *testing.T) {
	kept := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(kept, []byte(table()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if got := table(); got != string(want) {
		t.Errorf("the table is\n%s\nand %s has\n%s\nIf that is meant: go test -update, and bring it to docs/failures.md",
			got, kept, want)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "failures.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), string(want)) {
		t.Errorf("docs/failures.md does not show\n%s", want)
	}
}

// TestWhatTheTableLeavesOut holds for each kind in each state.
func TestWhatTheTableLeavesOut(t *testing.T) {
	for k := range kindCount {
		for _, cloud := range links {
			for _, coordinator := range links {
				s := Situation{StandIn: true, CloudLink: cloud, CoordinatorLink: coordinator}
				all := answerers(k, s)
				if s.HeartbeatsRelayed = true; cloud != link.Down && !slices.Equal(all, answerers(k, s)) {
					t.Errorf("%v, cloud %v, coordinator %v: another answer where heartbeats are relayed", k, cloud, coordinator)
				}
				s.HeartbeatsRelayed = false
				if cloud == link.Unknown {
					s.CloudLink = link.Up
				}
				if coordinator != link.Up {
					s.CoordinatorLink = link.Down
				}
				if shown := answerers(k, s); !slices.Equal(all, shown) {
					t.Errorf("%v, cloud %v, coordinator %v: %v, the table shows %v", k, cloud, coordinator, all, shown)
				}
				// These answer always. Without one of them, a request may have no answer at all.
				always := slices.Contains(all, Cloud) || slices.Equal(all, []Answerer{Lease}) || k == PoolRead
				if always == (k == Refused) {
					t.Errorf("%v, cloud %v, coordinator %v: %v", k, cloud, coordinator, all)
				}
				if sorted := slices.Sorted(slices.Values(all)); len(slices.Compact(sorted)) != len(all) {
					t.Errorf("%v, cloud %v, coordinator %v: somebody is asked twice: %v", k, cloud, coordinator, all)
				}
				if hears := hears(k); hears != Nobody && (!slices.Contains(all, Cloud) || hears >= answererCount) {
					t.Errorf("%v, cloud %v, coordinator %v: %v hears what the cloud is not asked", k, cloud, coordinator, hears)
				}
			}
		}
	}
}
