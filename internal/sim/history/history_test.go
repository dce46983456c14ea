package history

import (
	"cmp"
	"go/format"
	"go/parser"
	"reflect"
	"slices"
	"testing"
	"time"
)

var cast = Cast{
	Paths:   [][2]string{{"n1", "cloud"}, {"n2", "cloud"}, {"n1", "n2"}},
	Servers: []string{"cloud-1", "slot0"}, Machines: []string{"n1", "n2", "cloud"},
	Programs: []string{"n1/hub", "n1/kubelet"}, Nodes: []string{"n1", "n2"},
}

// TestRandom: a seed says all, events are in order and within the history, and over many seeds everything that can happen does.
func TestRandom(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(3000) {
		h := Random(seed, 5, 1, cast, All)
		if !reflect.DeepEqual(h, Random(seed, 5, 1, cast, All)) {
			t.Fatalf("seed %d gives two histories", seed)
		}
		if h.Long < 5*time.Minute || h.Long > 10*time.Minute || len(h.Events) < 4 || len(h.Events) > 12 {
			t.Fatalf("seed %d: %v, %d events", seed, h.Long, len(h.Events))
		}
		last := time.Duration(0)
		for _, e := range h.Events {
			if e.At < last || e.At >= h.Long || e.For < 0 || e.On == "" {
				t.Fatalf("seed %d: %v", seed, e)
			}
			last = e.At
			seen[string(e.Does)+" "+e.How] = true
			if e.To != "" && e.Does == Server {
				seen["of one node"] = true
			}
		}
	}
	for kind := range All {
		for _, w := range ways[kind] {
			if !seen[string(kind)+" "+w.how] {
				t.Errorf("%s %s never happens", kind, w.how)
			}
		}
	}
	if !seen["of one node"] {
		t.Error("no server fails for one node")
	}
}

// TestWeights: what has no weight does not happen.
func TestWeights(t *testing.T) {
	for seed := range uint64(200) {
		for _, e := range Random(seed, 5, 1, cast, Links).Events {
			if Links[e.Does] == 0 {
				t.Fatalf("seed %d: %v", seed, e)
			}
		}
	}
}

// TestTable: a history is written as Go that gofmt would not change.
func TestTable(t *testing.T) {
	for seed := range uint64(100) {
		text := Random(seed, 5, 1, cast, All).Table()
		if _, err := parser.ParseExpr(text); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		source := "package p\n\nvar h = " + text + "\n"
		if got, err := format.Source([]byte(source)); err != nil || string(got) != source {
			t.Fatalf("gofmt changes it: %v\n%s", err, got)
		}
	}
	want := "history.History{Seed: 7, Nodes: 4, Coordinators: 2, Unrelayed: true, " +
		"Long: 6 * time.Minute, Events: []history.Event{\n" +
		"\t{At: 90 * time.Second, For: 2 * time.Minute, Does: history.Path, On: \"n1\", To: \"cloud\", " +
		"How: \"far\", Much: 0.6},\n}}"
	got := History{Seed: 7, Nodes: 4, Coordinators: 2, Unrelayed: true, Long: 6 * time.Minute, Events: []Event{
		{At: 90 * time.Second, For: 2 * time.Minute, Does: Path, On: "n1", To: "cloud", How: "far", Much: 0.6},
	}}.Table()
	if got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// TestShrink: of a history that breaks for two of its events, in this order and at least 10 s apart, these remain, as short as
// may be.
func TestShrink(t *testing.T) {
	breaks := func(h History) bool {
		first := slices.IndexFunc(h.Events, func(e Event) bool {
			return e.Does == Path && e.On == "n1" && e.For >= 7*time.Second
		})
		second := slices.IndexFunc(h.Events, func(e Event) bool { return e.Does == Program && e.On == "n1/hub" })
		return first >= 0 && second > first && h.Events[second].At-h.Events[first].At >= 10*time.Second && h.Nodes >= 4
	}
	for seed := range uint64(20) {
		h := Random(seed, 6, 3, cast, All)
		at := (h.Long / 3).Truncate(time.Second)
		h.Events = append(h.Events, Event{At: at, For: time.Minute, Does: Path, On: "n1", To: "cloud", How: "silent"},
			Event{At: 2 * at, For: 12 * time.Second, Does: Program, On: "n1/hub", How: "killed"})
		slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		asked := 0
		got := Shrink(h, 1, 2000, func(c History) bool { asked++; return breaks(c) })
		first, second := got.Events[0], got.Events[len(got.Events)-1]
		if len(got.Events) != 2 || got.Nodes != 4 || got.Coordinators != 1 || first.At != 0 || second.At >= 20*time.Second ||
			first.For >= 14*time.Second || second.For >= 2*time.Second || got.Long > second.At+15*time.Second {
			t.Errorf("seed %d, after %d questions:\n%s", seed, asked, got.Table())
		}
	}
}

// TestShrinkByChance: a candidate that breaks now and then is kept, and the questions are bounded.
func TestShrinkByChance(t *testing.T) {
	h := Random(1, 5, 1, cast, All)
	asked := 0
	got := Shrink(h, 5, 10_000, func(c History) bool { asked++; return asked%3 == 0 && len(c.Events) > 0 })
	if len(got.Events) != 1 {
		t.Errorf("%d events remain", len(got.Events))
	}
	asked = 0
	Shrink(h, 5, 100, func(History) bool { asked++; return false })
	if asked > 100 {
		t.Errorf("asked %d times", asked)
	}
}
