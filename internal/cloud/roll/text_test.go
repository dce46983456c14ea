package roll

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	long := strings.Repeat("x", 20)
	three := []Entry{{"a", long}, {"b", long}, {"c", long}}
	for what, tt := range map[string]struct {
		entries []Entry
		most    int
		want    string
		out     int
	}{
		"nobody":                  {},
		"one":                     {[]Entry{{"p1", "c1"}}, 100, "\np1=c1\n", 0},
		"one without a value":     {[]Entry{{"n1", ""}}, 100, "\nn1=\n", 0},
		"in order":                {[]Entry{{"p2", "b"}, {"p10", "c"}, {"p1", "a"}}, 100, "\np1=a\np10=c\np2=b\n", 0},
		"several of a key":        {[]Entry{{"p1", "c"}, {"p1", "a"}, {"p1", "b"}}, 100, "\np1=a\n", 0},
		"no names":                {[]Entry{{"", "a"}, {"p=1", "a"}, {"p\n1", "a"}, {" ", "a"}, {"p3", "c"}}, 99, "\np3=c\n", 4},
		"a value that is no name": {[]Entry{{"p1", "a\nb=c"}, {"p2", "d"}}, 100, "\np2=d\n", 1},
		"one of two is a name":    {[]Entry{{"p1", "a b"}, {"p1", "c"}}, 100, "\np1=c\n", 0},
		"as many as fit":          {three, 1 + 2*23, "\na=" + long + "\nb=" + long + "\n", 1},
		"one byte too few":        {three, 2 * 23, "\na=" + long + "\n", 2},
		"none fits":               {[]Entry{{"a", "b"}}, 3, "", 1},
	} {
		said, out := text(tt.entries, tt.most)
		if said != tt.want || out != tt.out {
			t.Errorf("%s: %q, %d left out; want %q, %d", what, said, out, tt.want, tt.out)
		}
		if tt.most > 0 && len(said) > tt.most {
			t.Errorf("%s: %d bytes of %d", what, len(said), tt.most)
		}
		slices.Reverse(tt.entries)
		if again, _ := text(tt.entries, tt.most); again != said {
			t.Errorf("%s: the other way round %q", what, again)
		}
	}
}

// TestTextHolds: thousands of pools by the longest names fit.
func TestTextHolds(t *testing.T) {
	var entries []Entry
	for i := range 5000 {
		name := fmt.Sprintf("%05d%s", i, strings.Repeat("x", 58))
		entries = append(entries, Entry{name, name})
	}
	said, out := text(entries, maxText)
	if in := strings.Count(said, "="); in < 4000 || in+out != len(entries) || len(said) > maxText {
		t.Errorf("%d of %d, %d left out, %d bytes", in, len(entries), out, len(said))
	}
}
