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

func TestBelievable(t *testing.T) {
	const last = History(histories - 1)
	for h, want := range map[History]bool{
		0: true, 7: true, mostHistories: true, mostHistories + 1: false, last: false, History(0).Filled(): true,
		History(mostHistories).Filled(): true, History(mostHistories + 1).Filled(): false, last.Filled(): false,
	} {
		if got := h.Believable(); got != want {
			t.Errorf("%s: %t", h, got)
		}
	}
}
