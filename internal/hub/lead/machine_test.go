package lead

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

const self = edge.NodeName("n1")

// parse reads an event of a transcript.
func parse(t *testing.T, line string) Event {
	t.Helper()
	states := map[string]link.State{"unknown": link.Unknown, "up": link.Up, "down": link.Down, "failing": link.Failing}
	f := strings.Fields(line)
	number := func(s string) (n int32) {
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatalf("transcript line %q: %v", line, err)
		}
		return n
	}
	switch f[0] {
	case "links":
		return Links{Cloud: states[f[1]], Coordinator: states[f[2]]}
	case "won":
		return Won{number(f[1])}
	case "lost":
		return Lost{}
	case "ended":
		return Ended{}
	case "observed":
		if len(f) == 1 {
			return Observed{}
		}
		return Observed{edge.NodeName(f[1]), number(f[2])}
	}
	t.Fatalf("transcript has the unknown event %q", line)
	return nil
}

// TestTranscripts replays testdata/*.txt: lines "> event", each followed by what the machine made of it.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
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
			m := NewMachine(self)
			for line := range strings.Lines(string(golden)) {
				switch {
				case strings.HasPrefix(line, "#"):
					got.WriteString(line)
				case strings.HasPrefix(line, "> "):
					got.WriteString(line)
					action := m.Step(parse(t, line[2:]))
					s := m.Standing()
					fmt.Fprintf(&got, "  %s campaign=%s leader=%q transitions=%d: %s\n",
						s.Role, m.campaign, s.Leader, s.Transitions, action)
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

func TestLinksDecideWhetherToCampaign(t *testing.T) {
	for _, cloud := range []link.State{link.Unknown, link.Up, link.Down, link.Failing} {
		for _, coordinator := range []link.State{link.Unknown, link.Up, link.Down, link.Failing} {
			t.Run(fmt.Sprintf("cloud %s, coordinator %s", cloud, coordinator), func(t *testing.T) {
				both := cloud == link.Up && coordinator == link.Up
				wantRole := Pending
				if coordinator == link.Up {
					wantRole = Follower
				}
				m := NewMachine(self)
				action := m.Step(Links{cloud, coordinator})
				if (action == Campaign) != both || m.Standing().Role != wantRole {
					t.Errorf("from nothing: %s as %s; want campaign=%v as %s", action, m.Standing().Role,
						both, wantRole)
				}
				leader := NewMachine(self)
				leader.Step(Links{link.Up, link.Up})
				leader.Step(Won{1})
				if both {
					wantRole = Leader
				}
				action = leader.Step(Links{cloud, coordinator})
				if (action == Release) == both || leader.Standing().Role != wantRole {
					t.Errorf("from Leader: %s as %s; want release=%v and %s", action, leader.Standing().Role,
						!both, wantRole)
				}
			})
		}
	}
}

// TestAgainstNaiveModel compares the machine with one that keeps the whole history and looks everything up in it.
func TestAgainstNaiveModel(t *testing.T) {
	states := []link.State{link.Unknown, link.Up, link.Down, link.Failing}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewMachine(self)
		var history []string
		var model naive
		for range 60 {
			event := model.possible(r, states)
			history = append(history, event.String())
			wantAction := model.step(event)
			action := m.Step(event)
			history = append(history, "  "+action.String())
			if action != wantAction || m.Standing().Role != model.role() {
				t.Fatalf("seed %d: %s as %s, the model says %s as %s, after:\n%s", seed, action, m.Standing().Role,
					wantAction, model.role(), strings.Join(history, "\n"))
			}
		}
	}
}

// naive is a campaign seen from outside: what was started, stopped, won and ended, counted.
type naive struct {
	links                              Links
	started, stopped, won, lost, ended int
}

func (n *naive) alive() bool { return n.started > n.ended }

// possible draws an event that the world could bring: a campaign wins or loses only while it runs.
func (n *naive) possible(r *rand.Rand, states []link.State) Event {
	for {
		switch r.IntN(7) {
		case 0, 1:
			// Up more often than not, else no campaign lives long.
			often := append(slices.Clip(states), link.Up, link.Up, link.Up)
			pick := func() link.State { return often[r.IntN(len(often))] }
			return Links{pick(), pick()}
		case 2:
			return Observed{edge.NodeName([]string{"", "n1", "n2"}[r.IntN(3)]), int32(r.IntN(9))}
		case 3, 4:
			if n.alive() && n.won < n.started && n.lost < n.started {
				return Won{int32(r.IntN(9))}
			}
		case 5:
			if n.alive() && n.won == n.started && n.lost < n.started {
				return Lost{}
			}
		case 6:
			// A campaign ends only when it was stopped or has lost.
			if n.alive() && (n.stopped == n.started || n.lost == n.started) {
				return Ended{}
			}
		}
	}
}

// step keeps counters that equal started for "the current campaign": each counter is the number of the last campaign
// for which it happened.
func (n *naive) step(e Event) Action {
	switch e := e.(type) {
	case Links:
		n.links = e
	case Won:
		n.won = n.started
	case Lost:
		n.lost = n.started
	case Ended:
		n.ended = n.started
	}
	fit := n.links == Links{link.Up, link.Up}
	if fit && !n.alive() {
		n.started++
		return Campaign
	}
	if !fit && n.alive() && n.stopped < n.started && n.lost < n.started {
		n.stopped = n.started
		return Release
	}
	return Nothing
}

func (n *naive) role() Role {
	if n.links.Coordinator != link.Up {
		return Pending
	}
	if n.alive() && n.won == n.started && n.lost < n.started && n.stopped < n.started {
		return Leader
	}
	return Follower
}

// String returns "nothing", "campaign" or "release".
func (a Action) String() string {
	switch a {
	case Campaign:
		return "campaign"
	case Release:
		return "release"
	default:
		return "nothing"
	}
}

func (c campaign) String() string {
	return [...]string{"idle", "running", "holding", "ending"}[c]
}
