package home

import (
	"math/rand/v2"
	"testing"
	"time"

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

// TestHomeIsWhereSomebodyAnswers tries what comes to mind: home is up whenever a slot is, once all have been looked at; and a hub
// goes back to a lower slot only after that was up for as long as it takes.
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

func TestCampaigns(t *testing.T) {
	for _, tt := range []struct {
		slot, home int
		leads      bool
		cloud      link.State
		want       link.State
	}{
		{0, 0, false, link.Up, link.Up}, {0, 0, true, link.Up, link.Up}, {0, 0, true, link.Down, link.Down},
		{0, 0, false, link.Relayed, link.Relayed}, {0, 0, false, link.Failing, link.Failing},
		{1, 0, false, link.Up, link.Down}, {1, 0, true, link.Up, link.Up}, {1, 0, true, link.Down, link.Down},
		{1, 0, true, link.Relayed, link.Down}, {0, 1, false, link.Up, link.Down}, {0, 1, true, link.Up, link.Up},
	} {
		if got := Campaigns(tt.slot, tt.home, tt.leads, tt.cloud); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
