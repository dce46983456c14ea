package edge

import (
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]Line{
		"12/3/0/free":       {Answer: 12 * time.Millisecond, Spread: 3 * time.Millisecond},
		"612/180/2/metered": {Answer: 612 * time.Millisecond, Spread: 180 * time.Millisecond, Lost: 2, Metered: true},
		"0/0/0/free":        {},
	} {
		got, ok := ParseLine(text)
		if !ok || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v, which says %q", text, got, ok, got)
		}
	}
	for _, bad := range []string{
		"", "12/3/0", "12/3/0/", "12/3/0/dear", "-1/0/0/free", "0/0/-1/free", "1/2/3/free/4", " 1/2/3/free", "1/2/3/free ",
		"99999999999/0/0/free", "01/0/0/free", "x/0/0/free",
	} {
		if got, ok := ParseLine(bad); ok {
			t.Errorf("%q: %+v, want that it can't be read", bad, got)
		}
	}
}

func TestYielded(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	if got, ok := ParseYielded(FormatYielded(at)); !ok || !got.Equal(at) {
		t.Errorf("%v, %v, want %v", got, ok, at)
	}
	for _, bad := range []string{"", "0", "-5", "soon", "1.5"} {
		if got, ok := ParseYielded(bad); ok {
			t.Errorf("%q: %v, want that it can't be read", bad, got)
		}
	}
}
