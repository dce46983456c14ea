package doubt

import (
	"cmp"
	"errors"
	"testing"
	"time"
)

func TestGuard(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	type offer struct {
		after        time.Duration
		have, remove int
		passes       bool
	}
	for _, test := range []struct {
		name   string
		policy Policy
		offers []offer
		least  int
	}{
		{"few objects", Shown(), []offer{{0, 9, 9, true}}, 0},
		{"half", Shown(), []offer{{0, 10, 5, true}}, 0},
		{"few that matter", Shown(), []offer{
			{0, 1, 1, false}, {29 * time.Second, 1, 1, false}, {30 * time.Second, 1, 1, true},
		}, 1},
		{"none to lose", Shown(), []offer{{0, 0, 0, true}}, 1},
		{"one of two that matter", Shown(), []offer{{0, 2, 1, true}}, 1},
		{"more than half", Shown(), []offer{{0, 10, 6, false}}, 0},
		{"offered long enough", Shown(), []offer{
			{0, 100, 99, false}, {29 * time.Second, 100, 99, false}, {30 * time.Second, 100, 99, true},
		}, 0},
		{"offered often, but not for long", Shown(), []offer{
			{0, 100, 99, false}, {1, 100, 99, false}, {2, 100, 99, false}, {3, 100, 99, false},
		}, 0},
		{"offered twice only", Shown(), []offer{
			{0, 100, 99, false}, {time.Minute, 100, 99, false}, {61 * time.Second, 100, 99, true},
		}, 0},
		{"a sane one between", Shown(), []offer{
			{0, 100, 99, false}, {29 * time.Second, 100, 99, false}, {30 * time.Second, 100, 1, true},
			{31 * time.Second, 100, 99, false},
		}, 0},
		{"believed once, not for ever", Shown(), []offer{
			{0, 100, 99, false}, {15 * time.Second, 100, 99, false}, {30 * time.Second, 100, 99, true},
			{31 * time.Second, 100, 99, false},
		}, 0},
		{"another incident", Shown(), []offer{
			{0, 100, 99, false}, {15 * time.Second, 100, 99, false}, {11 * time.Minute, 100, 99, false},
		}, 0},
		{"restored", Restored(), []offer{
			{0, 100, 99, false}, {4 * time.Second, 100, 99, false}, {8 * time.Second, 100, 99, true},
		}, 0},
		{"restored, offered often, but not for long", Restored(), []offer{
			{0, 100, 99, false}, {1, 100, 99, false}, {2, 100, 99, false}, {7 * time.Second, 100, 99, false},
		}, 0},
		{"restored, and lists are slow", Restored(), []offer{{0, 100, 99, false}, {10 * time.Second, 100, 99, true}}, 0},
	} {
		var g Guard
		for i, o := range test.offers {
			err := g.Check(start.Add(o.after), test.policy, cmp.Or(test.least, Minimum), o.have, o.remove)
			if (err == nil) != o.passes || (err != nil && !errors.Is(err, ErrSuspicious)) {
				t.Errorf("%s: offer %d: %v, want it to pass: %v", test.name, i+1, err, o.passes)
			}
		}
	}
}

// Whoever waits Pause and up to Spread between offers is believed at the last one needed, and not later than Enough.
func TestPausesFitThePolicy(t *testing.T) {
	for name, p := range map[string]Policy{"shown": Shown(), "restored": Restored()} {
		for _, pause := range []time.Duration{p.Pause(), p.Pause() + p.Spread()} {
			var d Doubt
			now := time.Unix(1_700_000_000, 0)
			for i := range tries {
				if believed := d.Offer(now, p); believed != (i == tries-1) {
					t.Errorf("%s, a pause of %v: offer %d is believed: %v", name, pause, i+1, believed)
				}
				now = now.Add(pause)
			}
		}
		if p.Enough > 0 && p.Longest() > p.Enough {
			t.Errorf("%s: the pauses are %v in all, more than %v", name, p.Longest(), p.Enough)
		}
	}
}
