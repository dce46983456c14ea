package lead

import (
	"math/rand/v2"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

func at(answer, spread int) edge.Line {
	return edge.Line{Answer: time.Duration(answer) * time.Millisecond, Spread: time.Duration(spread) * time.Millisecond}
}

func losing(l edge.Line, lost int) edge.Line { l.Lost = lost; return l }
func paid(l edge.Line) edge.Line             { l.Metered = true; return l }

func TestBetter(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b edge.Line
		want bool
	}{
		"the same":                               {at(20, 5), at(20, 5), false},
		"a little faster":                        {at(20, 5), at(60, 10), false},
		"twice as fast, and both are fast":       {at(10, 2), at(40, 10), false},
		"far faster":                             {at(20, 5), at(600, 20), true},
		"the other way round":                    {at(600, 20), at(20, 5), false},
		"half of a slow line":                    {at(300, 0), at(600, 0), true},
		"more than half of it":                   {at(301, 0), at(600, 0), false},
		"as fast, and steady":                    {at(100, 5), at(120, 100), true},
		"as fast, and it loses nothing":          {at(100, 5), losing(at(100, 5), 1), true},
		"it loses as much":                       {losing(at(20, 5), 2), losing(at(30, 5), 2), false},
		"free instead of paid":                   {at(50, 5), paid(at(20, 5)), true},
		"free and slow, instead of paid":         {at(900, 200), paid(at(20, 5)), true},
		"free and too slow":                      {losing(at(900, 200), 3), paid(at(20, 5)), false},
		"free and no slower than the paid line":  {losing(at(900, 200), 3), paid(losing(at(900, 200), 3)), true},
		"paid and far faster":                    {paid(at(20, 5)), at(900, 100), false},
		"both paid, far faster":                  {paid(at(20, 5)), paid(at(600, 20)), true},
		"a line that takes no time at all":       {at(0, 0), at(0, 0), false},
		"margin: exactly as much longer":         {at(100, 0), at(200, 0), true},
		"margin: a millisecond too little saved": {at(99, 0), at(198, 0), false},
	} {
		if got := better(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: %s better than %s: %v", name, tt.a, tt.b, got)
		}
	}
}

// TestNeverEachOther checks that of two lines at most one is better than the other, so that two nodes with unchanged lines can't
// hand over to each other. Nor can three, in a circle.
func TestNeverEachOther(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	line := func() edge.Line {
		return edge.Line{
			Answer: time.Duration(r.IntN(3000)) * time.Millisecond, Spread: time.Duration(r.IntN(500)) * time.Millisecond,
			Lost: r.IntN(4), Metered: r.IntN(2) == 0,
		}
	}
	for range 20000 {
		a, b, c := line(), line(), line()
		if better(a, b) && better(b, a) {
			t.Fatalf("%s and %s are each better than the other", a, b)
		}
		if better(a, b) && better(b, c) && better(c, a) {
			t.Fatalf("%s, %s and %s form a circle", a, b, c)
		}
	}
}

func TestLook(t *testing.T) {
	began := time.Unix(1e9, 0)
	slow, fast, faster := at(600, 50), at(30, 5), at(10, 1)
	type looks = map[edge.NodeName]edge.Line
	for name, tt := range map[string]struct {
		lines func(second int) looks
		want  edge.NodeName
		after int // seconds
	}{
		"nobody is better":   {func(int) looks { return looks{"a": fast, "b": fast, "c": slow} }, "", 0},
		"nobody is there":    {func(int) looks { return looks{} }, "", 0},
		"our own is not":     {func(int) looks { return looks{"b": fast} }, "", 0},
		"one is better":      {func(int) looks { return looks{"a": slow, "b": fast, "c": slow} }, "b", 60},
		"the best of two":    {func(int) looks { return looks{"a": slow, "b": fast, "c": faster} }, "c", 60},
		"of equals, by name": {func(int) looks { return looks{"a": slow, "c": fast, "b": fast} }, "b", 60},
		"one that is free before one that is faster": {func(int) looks {
			return looks{"a": paid(slow), "b": paid(faster), "c": fast}
		}, "c", 60},
		"it is not for long": {func(s int) looks {
			if s%50 == 45 {
				return looks{"a": slow, "b": slow}
			}
			return looks{"a": slow, "b": fast}
		}, "", 0},
		"it loses its link for a moment": {func(s int) looks {
			if s == 30 {
				return looks{"a": slow}
			}
			return looks{"a": slow, "b": fast}
		}, "b", 95},
		"our own gets better": {func(s int) looks {
			if s < 55 {
				return looks{"a": slow, "b": fast}
			}
			return looks{"a": fast, "b": fast}
		}, "", 0},
		"a better one comes late": {func(s int) looks {
			if s < 30 {
				return looks{"a": slow, "b": fast}
			}
			return looks{"a": slow, "b": fast, "c": faster}
		}, "b", 60},
	} {
		t.Run(name, func(t *testing.T) {
			j := comparison{self: "a"}
			for s := 0; s <= 300; s += 5 {
				to, ok := j.compare(tt.lines(s), began.Add(time.Duration(s)*time.Second))
				if ok != (to != "") {
					t.Fatalf("%d s: %q, %v", s, to, ok)
				}
				if ok && (to != tt.want || s != tt.after) {
					t.Fatalf("%d s: to %q, want %q after %d s", s, to, tt.want, tt.after)
				}
				if ok {
					return
				}
			}
			if tt.want != "" {
				t.Errorf("never, want to %s after %d s", tt.want, tt.after)
			}
		})
	}
}
