package coordinators

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
)

// seen returns what is seen of slots, one letter each: u up, U up and complete, d down, ? unknown.
func seen(letters string) (all []Sight) {
	for _, l := range letters {
		all = append(all, map[rune]Sight{
			'u': {link.Up, false}, 'U': {link.Up, true}, 'd': {link.Down, false}, '?': {link.Unknown, false},
		}[l])
	}
	return all
}

func TestMachine(t *testing.T) {
	type step struct {
		at    time.Duration
		seen  string
		home  int
		again time.Duration // 0 means never
	}
	const s = time.Second
	for name, steps := range map[string][]step{
		"one coordinator":          {{0, "?", 0, 0}, {s, "d", 0, 0}, {2 * s, "u", 0, 0}, {3 * s, "d", 0, 0}},
		"all answer":               {{0, "???", 0, 0}, {s, "uuu", 0, 0}},
		"the second answers first": {{0, "??", 0, 0}, {s, "?u", 0, 0}, {2 * s, "uu", 0, 0}},
		"the first is not there":   {{0, "??", 0, 0}, {s, "?u", 0, 0}, {2 * s, "du", 1, 0}},
		"only the last is there":   {{0, "ddu", 2, 0}},
		"nobody is there":          {{0, "ddd", 0, 0}, {s, "ddu", 2, 0}},
		"home dies": {
			{0, "uuu", 0, 0}, {s, "duu", 1, 0}, {2 * s, "ddu", 2, 0}, {3 * s, "ddd", 2, 0}, {4 * s, "dud", 1, 0},
		},
		"a standby dies":  {{0, "uuu", 0, 0}, {s, "udu", 0, 0}, {2 * s, "uud", 0, 0}},
		"home comes back": {{0, "uu", 0, 0}, {s, "du", 1, 0}, {10 * s, "Uu", 1, 40 * s}, {40 * s, "Uu", 0, 0}},
		"home comes back, and is not filled": {
			{0, "uu", 0, 0}, {s, "du", 1, 0}, {10 * s, "uu", 1, 40 * s}, {40 * s, "uu", 1, 0}, {99 * s, "Uu", 0, 0},
		},
		"home comes back twice": {
			{0, "uu", 0, 0}, {s, "du", 1, 0}, {10 * s, "Uu", 1, 40 * s}, {39 * s, "du", 1, 0}, {41 * s, "Uu", 1, 71 * s},
			{70 * s, "Uu", 1, 71 * s}, {71 * s, "Uu", 0, 0},
		},
		"the next dies before home has settled": {
			{0, "uu", 0, 0}, {s, "du", 1, 0}, {10 * s, "uu", 1, 40 * s}, {11 * s, "ud", 0, 0},
		},
		"the middle one comes back first": {
			{0, "ddu", 2, 0}, {10 * s, "dUu", 2, 40 * s}, {20 * s, "uUu", 2, 40 * s}, {40 * s, "uUu", 1, 0},
			{50 * s, "uUu", 1, 0},
			{51 * s, "UUu", 0, 0},
		},
		"the lowest of two that have come back": {{0, "ddu", 2, 0}, {10 * s, "UUu", 2, 40 * s}, {40 * s, "UUu", 0, 0}},
	} {
		began := time.Unix(1e9, 0)
		var m Machine
		for i, st := range steps {
			home, again := m.Step(began.Add(st.at), seen(st.seen))
			var want time.Time
			if st.again != 0 {
				want = began.Add(st.again)
			}
			if home != st.home || !again.Equal(want) {
				t.Errorf("%s, step %d: home %d, again at %s; want %d, %s", name, i, home, again.Sub(began), st.home, st.again)
			}
		}
	}
}

// TestHomeIsWhereSomebodyAnswers tries random states. Home is up whenever a slot is, once all slots were looked at. A hub returns
// to a lower slot only after that was up for long enough.
func TestHomeIsWhereSomebodyAnswers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var m Machine
		now, slots := time.Unix(1e9, 0), seen("ddd")
		upSince := [3]time.Time{}
		home := 0
		for range 200 {
			now = now.Add(time.Duration(random.IntN(20_000)) * time.Millisecond)
			i := random.IntN(3)
			slots[i] = Sight{[]link.State{link.Down, link.Up, link.Up}[random.IntN(3)], random.IntN(2) == 0}
			reached := false
			for i, s := range slots {
				switch up := s.Link == link.Up; {
				case !up:
					upSince[i] = time.Time{}
				case upSince[i].IsZero():
					upSince[i] = now
				}
				reached = reached || s.Link == link.Up
			}
			lost := slots[home].Link != link.Up
			next, _ := m.Step(now, slots)
			switch {
			case reached && slots[next].Link != link.Up:
				t.Fatalf("home is %d of %v", next, slots)
			case next < home && !lost && (now.Sub(upSince[next]) < settled || !slots[next].Complete):
				t.Fatalf("went back from %d to %d, which is up for %s: %v", home, next, now.Sub(upSince[next]), slots)
			case next > home && !lost:
				t.Fatalf("left %d for %d without need: %v", home, next, slots)
			}
			home = next
		}
	}
}

// TestStand has a table of one slot's election and this hub's campaign. A step is a second. The columns: home or standby; whether
// this hub leads at home; its state there: pending, leads, or a follower where no hub leads (vacant), the leader has just renewed
// (led) or does not (silent); and the link to the cloud.
func TestStand(t *testing.T) {
	for name, steps := range map[string]string{
		"home takes the link as it is": "0 home not vacant up = up, 1 home leader leads up = up, " +
			"2 home leader leads down = down, " +
			"3 home not led relayed = relayed, 4 home not vacant failing = failing",
		"the leader leads everywhere": "0 standby leader vacant up = up, 1 standby leader leads up = up, " +
			"9 standby leader led up = up",
		"others do not": "0 standby not led up = down 9, 9 standby not led up = down 18, " +
			"60 standby not led up = down 69",
		"the leader dies": "0 standby not led up = down 9, 2 standby not silent up = down 9, 9 standby not silent up = up, " +
			"10 standby not led up = down 19",
		"it is released late": "0 standby not led up = down 9, " +
			"8 standby not silent up = down 9, 8 standby not vacant up = down 9",
		"a line that fails": "0 standby leader leads down = down, 1 standby leader vacant relayed = down",
		"nobody leads there": "0 standby not vacant up = down 5, " +
			"4 standby not vacant up = down 5, 5 standby not vacant up = up",
		"who leads there goes on": "0 standby not vacant up = down 5, 5 standby not vacant up = up, " +
			"6 standby not leads up = up",
		"somebody else came to lead": "0 standby not vacant up = down 5, 5 standby not vacant up = up, " +
			"6 standby not led up = down 15",
		"a change of leader": "0 standby not led up = down 9, " +
			"3 standby not vacant up = down 8, 4 standby not led up = down 13, 9 standby not vacant up = down 13",
		"it was not reached in between": "0 standby not vacant up = down 5, " +
			"4 standby not pending up = down, 5 standby not vacant up = down 10",
		"without a line": "0 standby not vacant relayed = down, 9 standby not vacant up = up",
		"it was home":    "0 home not vacant up = up, 9 standby not vacant up = up",
	} {
		began := time.Unix(1e9, 0)
		states := map[string]link.State{"up": link.Up, "down": link.Down, "relayed": link.Relayed, "failing": link.Failing}
		var s Stand
		var renewed time.Time
		for step := range strings.SplitSeq(steps, ", ") {
			f := append(strings.Fields(step), "")
			at := func(second string) time.Time {
				if second == "" {
					return time.Time{}
				}
				n, err := strconv.Atoi(second)
				if err != nil {
					t.Fatal(err)
				}
				return began.Add(time.Duration(n) * time.Second)
			}
			if f[3] == "led" {
				renewed = at(f[0])
			}
			there := map[string]lead.Standing{
				"pending": {}, "vacant": {Role: lead.Follower}, "led": {Role: lead.Follower, Leader: "n9"},
				"silent": {Role: lead.Follower, Leader: "n9"}, "leads": {Role: lead.Leader, Leader: "n1"},
			}[f[3]]
			got, again := s.Step(at(f[0]), there, renewed, f[1] == "standby", f[2] == "leader", states[f[4]])
			if got != states[f[6]] || !again.Equal(at(f[7])) {
				t.Errorf("%s: %s: %s, again at %s", name, step, got, again)
			}
		}
	}
}
