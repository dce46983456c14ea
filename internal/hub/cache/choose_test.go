package cache

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/lead"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

// String returns the situation in a line.
func (s Situation) String() string {
	words := []string{s.Role.String(), "cloud=" + s.Cloud.String(), "coordinator=" + s.Coordinator.String()}
	for _, each := range []struct {
		is   bool
		word string
	}{
		{s.Pool, "pool"}, {s.LeaderKnown, "led"}, {s.Covered, "covered"}, {s.Filling, "filling"}, {s.Empty, "empty"},
		{s.Listing, "listing"},
	} {
		if each.is {
			words = append(words, each.word)
		}
	}
	return strings.Join(words, " ")
}

// String is the choice in a line.
func (c Choice) String() string {
	act := "resume"
	switch {
	case c.From == None:
		return "none: " + c.Why
	case c.List:
		act = "list"
	}
	wait := "at once"
	if c.After > 0 || c.Jitter > 0 {
		wait = fmt.Sprintf("after %s..%s", c.After, c.After+c.Jitter)
	}
	if c.Meanwhile != None {
		wait += ", meanwhile at the " + c.Meanwhile.String()
	}
	return fmt.Sprintf("%s at the %s %s: %s", act, c.From, wait, c.Why)
}

// String returns "down", "up", "expired", "stale" or "refusing".
func (a Access) String() string {
	return [...]string{"down", "up", "expired", "stale", "refusing"}[a]
}

// parse reads a situation of a transcript, as Situation.String writes it.
func parse(t *testing.T, line string) Situation {
	t.Helper()
	access := map[string]Access{"down": Down, "up": Up, "expired": Expired, "stale": Stale, "refusing": Refusing}
	var s Situation
	for _, word := range strings.Fields(line) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "pending", "follower", "leader":
			s.Role = map[string]lead.Role{"pending": lead.Pending, "follower": lead.Follower, "leader": lead.Leader}[name]
		case "cloud", "coordinator":
			a, known := access[value]
			if !known {
				t.Fatalf("transcript line %q: no access is called %q", line, value)
			}
			if name == "cloud" {
				s.Cloud = a
			} else {
				s.Coordinator = a
			}
		case "pool":
			s.Pool = true
		case "led":
			s.LeaderKnown = true
		case "covered":
			s.Covered = true
		case "filling":
			s.Filling = true
		case "empty":
			s.Empty = true
		case "listing":
			s.Listing = true
		default:
			t.Fatalf("transcript line %q: unknown word %q", line, word)
		}
	}
	return s
}

// TestTranscripts replays testdata/*.txt: lines "> situation", each followed by what is chosen.
func TestTranscripts(t *testing.T) {
	replay(t, "testdata/*.txt", func() func(string) string {
		return func(line string) string {
			s, told := strings.CutPrefix(line, "> ")
			if !told {
				t.Fatalf("transcript has the line %q", line)
			}
			situation := parse(t, s)
			return "> " + situation.String() + "\n  " + Choose(situation).String() + "\n"
		}
	})
}

// replay compares files with what begin's function makes of each line that is neither a comment nor an answer.
func replay(t *testing.T, glob string, begin func() func(line string) string) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			tell := begin()
			for line := range strings.Lines(string(golden)) {
				switch {
				case strings.HasPrefix(line, "#"):
					got.WriteString(line)
				case !strings.HasPrefix(line, "  "):
					got.WriteString(tell(strings.TrimSuffix(line, "\n")))
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got.String() != string(golden) && !*update {
				t.Errorf("transcript differs; got:\n%s", got.String())
			}
		})
	}
}

// TestChoose is the table of the rules.
func TestChoose(t *testing.T) {
	const (
		atCloud = iota
		listCloud
		atPool
		listPool
		nothing
	)
	kind := func(d Choice) int {
		switch {
		case d.From == Cloud && d.List:
			return listCloud
		case d.From == Cloud:
			return atCloud
		case d.From == Coordinator && d.List:
			return listPool
		case d.From == Coordinator:
			return atPool
		}
		return nothing
	}
	for situation, want := range map[string]struct {
		kind int
		most time.Duration // the longest wait
	}{
		"leader cloud=up coordinator=up pool led":                         {atCloud, 0},
		"leader cloud=up coordinator=up pool led covered":                 {atCloud, 0},
		"leader cloud=up coordinator=up pool led empty":                   {listPool, 0},
		"leader cloud=up coordinator=refusing pool led empty":             {listCloud, 0},
		"leader cloud=up coordinator=refusing pool led empty listing":     {listCloud, 0},
		"leader cloud=expired coordinator=up pool led":                    {listPool, 0},
		"leader cloud=expired coordinator=stale pool led":                 {listCloud, time.Second},
		"leader cloud=refusing coordinator=up pool led covered":           {atCloud, 0},
		"leader cloud=down coordinator=up pool led":                       {atPool, 0},
		"follower cloud=up coordinator=up pool led covered":               {atPool, 0},
		"follower cloud=up coordinator=up pool led covered empty":         {listPool, 0},
		"follower cloud=up coordinator=up pool led covered empty listing": {listPool, 0},
		"follower cloud=up coordinator=up pool led empty listing":         {listCloud, 20 * time.Second},
		"follower cloud=up coordinator=up pool led":                       {atCloud, 5 * time.Second},
		"follower cloud=up coordinator=refusing pool led covered":         {atCloud, 0},
		"follower cloud=up coordinator=refusing pool led empty":           {listCloud, 20 * time.Second},
		"follower cloud=up coordinator=refusing pool empty":               {listCloud, 15 * time.Second},
		"follower cloud=up coordinator=expired pool led covered":          {atCloud, 0},
		"follower cloud=down coordinator=expired pool":                    {listPool, 0},
		"follower cloud=down coordinator=up pool":                         {atPool, 0},
		"follower cloud=down coordinator=up pool empty":                   {listPool, 0},
		"follower cloud=expired coordinator=up pool led covered":          {atPool, 0},
		"follower cloud=expired coordinator=up pool led":                  {listPool, 0},
		"follower cloud=expired coordinator=expired pool led covered":     {listPool, 0},
		"follower cloud=expired coordinator=stale pool led covered":       {listCloud, 50 * time.Second},
		"follower cloud=expired coordinator=stale pool":                   {listCloud, 20 * time.Second},
		"pending cloud=expired coordinator=down pool":                     {listCloud, 10 * time.Second},
		"pending cloud=up coordinator=down pool":                          {atCloud, 0},
		"pending cloud=up coordinator=down pool empty":                    {listCloud, 6 * time.Second},
		"pending cloud=up coordinator=down empty":                         {listCloud, 0},
		"pending cloud=down coordinator=down pool":                        {nothing, 0},
		"pending cloud=down coordinator=down empty":                       {nothing, 0},
		"follower cloud=down coordinator=stale pool":                      {listPool, 0},
		"follower cloud=refusing coordinator=refusing pool led covered":   {atCloud, 0},
		"follower cloud=refusing coordinator=up pool led":                 {atPool, 0},
		"follower cloud=expired coordinator=up pool led listing":          {listCloud, 50 * time.Second},
		"follower cloud=expired coordinator=expired pool led listing":     {listCloud, 50 * time.Second},
		"follower cloud=up coordinator=refusing pool led filling empty":   {listCloud, 10*time.Minute + 5*time.Second},
		"follower cloud=up coordinator=up pool led filling empty":         {listPool, 0},
		"follower cloud=expired coordinator=stale pool led filling":       {listCloud, 10*time.Minute + 5*time.Second},
		"leader cloud=up coordinator=refusing pool led filling empty":     {listCloud, 0},
	} {
		d := Choose(parse(t, situation))
		if kind(d) != want.kind || d.After+d.Jitter > want.most {
			t.Errorf("%s: %s", situation, d)
		}
	}
}

// TestChooseEverywhere checks every possible situation against the rules that hold in all of them.
func TestChooseEverywhere(t *testing.T) {
	seen := 0
	each(func(s Situation) {
		seen++
		d := Choose(s)
		access := map[Origin]Access{Cloud: s.Cloud, Coordinator: s.Coordinator}
		bad := func(why string) { t.Errorf("%s\n  %s\n  %s", s, d, why) }
		if d.From != None && access[d.From] == Down {
			bad("nothing can come from there")
		}
		if d.From == None && (s.Cloud != Down || s.Coordinator != Down) {
			bad("something could come")
		}
		if s.Empty && d.From != None && !d.List {
			bad("a sink that has nothing can't resume")
		}
		if d.From == Cloud && d.List && !s.Empty && s.Cloud != Expired {
			bad("a list over the WAN that nobody needs")
		}
		if d.From == Cloud && d.List && !s.Listing && s.Coordinator == Up {
			bad("a list over the WAN before the pool was asked")
		}
		if !d.List && d.From != None && (access[d.From] == Expired || access[d.From] == Stale) {
			bad("resumed where it can't be")
		}
		longest := 20 * time.Second
		if s.LeaderKnown && !s.Empty && s.Cloud == Expired {
			longest = 50 * time.Second // our leader may doubt what it is offered for half a minute
		}
		if s.Filling {
			longest = 10*time.Minute + 5*time.Second // what is declared fades if the list does not come on
		}
		if d.After+d.Jitter > longest {
			bad("a wait longer than the longest")
		}
		if s.Coordinator == Down && d.After > aloneWait {
			bad("waits for a coordinator that is not there")
		}
		if s.Coordinator == Down && !s.Pool && s.Empty && d.After+d.Jitter > 0 {
			bad("a hub without a coordinator waits")
		}
		if s.Role == lead.Leader && (d.After > 0 || d.Jitter > startJitter) {
			bad("the pool waits for its leader")
		}
		if s.Listing && s.Cloud != Down && !s.Covered && s.Role != lead.Leader && (s.Empty || s.Cloud == Expired) &&
			(d.From != Cloud || !d.List) {
			bad("a list over the WAN given up for a mirror that may have nothing")
		}
		if d.Meanwhile != None && access[d.Meanwhile] != Up {
			bad("meanwhile nothing can come from there")
		}
		if d.Why == "" {
			bad("no reason")
		}
	})
	if seen < 1000 {
		t.Errorf("%d situations, want all", seen)
	}
}

func each(do func(Situation)) {
	for _, r := range []lead.Role{lead.Pending, lead.Follower, lead.Leader} {
		for _, cloud := range []Access{Down, Up, Expired, Refusing} {
			for _, coordinator := range []Access{Down, Up, Expired, Stale, Refusing} {
				for bits := range 64 {
					s := Situation{
						Role: r, Cloud: cloud, Coordinator: coordinator,
						Pool: bits&1 != 0 || coordinator != Down, LeaderKnown: bits&2 != 0,
						Covered: bits&4 != 0 && coordinator != Down, Empty: bits&8 != 0, Listing: bits&16 != 0 && cloud != Down,
						Filling: bits&32 != 0 && coordinator != Down,
					}
					if s.Empty && (cloud == Expired || coordinator == Expired || coordinator == Stale) {
						continue // these are about a position
					}
					do(s)
				}
			}
		}
	}
}
