package edge

import (
	"math/rand/v2"
	"testing"
)

func TestFilledHistoriesAreBelowAllOthers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	last := History(histories - 1)
	numbers := []History{0, 1, 2, last - 1, last}
	for range 200 {
		numbers = append(numbers, History(random.Int64N(histories)))
	}
	for _, a := range numbers {
		filled := a.Filled()
		if !filled.IsFilled() || a.IsFilled() || filled.OfCloud() != a || a.OfCloud() != a || filled.Filled() != filled {
			t.Errorf("%d: filled it is %d, of the cloud's %d", a, filled, filled.OfCloud())
		}
		for _, h := range []History{a, filled} {
			if got, err := ParseHistory(h.String()); err != nil || got != h {
				t.Errorf("%q is read as %d, %v", h.String(), got, err)
			}
		}
		for _, b := range numbers {
			if filled >= b || (filled < b.Filled()) != (a < b) {
				t.Errorf("filled, %d is not below %d, or not in its place", a, b)
			}
		}
	}
}

func TestParseHistory(t *testing.T) {
	for text, want := range map[string]History{"": 0, "0": 0, "7": 7, "filled-0": -histories, "filled-7": 7 - histories} {
		if got, err := ParseHistory(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"-1", "filled-", "filled--1", "filled-filled-1", " 1", "1.0", "0x1", "4611686018427387904", "filled-4611686018427387904",
		"18446744073709551615", "99999999999999999999",
	} {
		if got, err := ParseHistory(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// TestBelieves: whoever is believed, the number never comes near its end.
func TestBelieves(t *testing.T) {
	const last = History(histories - 1)
	for _, tt := range []struct {
		h, n History
		want bool
	}{
		{0, 0, true}, {0, 7, true}, {7, 0, true}, {0, 1_000_000, true}, {0, 2 * mostHistories, true},
		{0, 2*mostHistories + 1, false}, {0, last, false}, {0, History(0).Filled(), true}, {0, last.Filled(), false},
		{3 * mostHistories, 3*mostHistories + 1, true}, {3 * mostHistories, last, false},
		{(3 * mostHistories).Filled(), 4 * mostHistories, true},
	} {
		if got := tt.h.Believes(tt.n); got != tt.want {
			t.Errorf("in history %s, %s is believed: %t", tt.h, tt.n, got)
		}
	}
}
