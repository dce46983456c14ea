package edge

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestFillings(t *testing.T) {
	all := map[string]Filling{"services": FillingNone, "endpoints": FillingCurrent, "things.example.com": FillingComplete}
	text := JoinFillings(all)
	if want := "endpoints=current,services=none,things.example.com=complete"; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if got := SplitFillings(text); !maps.Equal(got, all) {
		t.Errorf("%v", got)
	}
	for text, want := range map[string]int{"": 0, "a": 0, "=none": 0, "a=later,b=none": 1, ",,": 0} {
		if got := SplitFillings(text); len(got) != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	var long strings.Builder
	for i := range 10 * maxFillings {
		fmt.Fprintf(&long, "r%d=none,", i)
	}
	if got := SplitFillings(long.String()); len(got) != maxFillings {
		t.Errorf("%d of a report without end", len(got))
	}
	for f, want := range map[Filling]bool{FillingNone: false, FillingComplete: true, FillingCurrent: true, "": false} {
		if f.Complete() != want {
			t.Errorf("%q is complete: %t", f, !want)
		}
	}
}
