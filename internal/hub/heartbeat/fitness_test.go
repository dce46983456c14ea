package heartbeat

import (
	"errors"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

// TestFitness: when a leader gives up its term. A step is a second and one of begin, taken, failed, aged, refused or reported,
// with a node; or heard; or the expected verdict: fit, unserved or deaf. Each step other than a verdict is also heard by the
// watch.
func TestFitness(t *testing.T) {
	for name, steps := range map[string]string{
		"nothing to write":       "0 heard, 14 fit, 15 deaf, 16 heard, 30 fit, 31 deaf",
		"one that hangs":         "0 begin a, 9 heard, 10 aged a, 10 begin a, 14 fit, 15 unserved, 16 unserved",
		"the first write of all": "3 begin a, 13 aged a, 13 begin a, 17 fit, 18 unserved",
		"answers at once":        "0 begin a, 0 failed a, 10 begin a, 10 failed a, 14 fit, 15 unserved",
		"one alone":              "0 begin a, 0 failed a, 14 fit, 14 heard, 15 fit, 16 fit",
		"two, a minute apart":    "0 begin a, 0 failed a, 60 begin a, 60 failed a, 60 fit, 74 fit, 74 heard, 75 fit",
		"one hangs, of two":      "0 begin a, 0 begin b, 1 taken b, 10 aged a, 10 begin a, 15 fit, 16 unserved",
		"others are taken": "0 begin a, 10 aged a, 10 begin a, 11 begin b, 12 taken b, 20 aged a, " +
			"26 fit, 26 heard, 27 fit",
		"refused":                  "0 begin a, 0 refused a, 10 begin a, 10 refused a, 20 begin a, 20 refused a, 21 fit",
		"it had it":                "0 begin a, 0 reported a, 10 begin a, 10 reported a, 20 begin a, 21 fit",
		"refused hides no silence": "0 begin b, 5 begin a, 5 refused a, 10 aged b, 10 begin b, 14 refused a, 15 unserved",
		"under way for less":       "0 begin a, 1 taken a, 30 begin a, 40 fit, 40 aged a, 41 begin a, 44 fit, 45 unserved",
	} {
		t.Run(name, func(t *testing.T) {
			at := func(s string) time.Time {
				seconds, err := time.ParseDuration(s + "s")
				if err != nil {
					t.Fatal(err)
				}
				return epoch.Add(seconds)
			}
			f, heard := newFitness(), epoch
			for step := range strings.SplitSeq(steps, ", ") {
				p := append(strings.Fields(step), "")
				now, node := at(p[0]), edge.NodeName(p[2])
				switch p[1] {
				case "fit", "unserved", "deaf":
					want := map[string]error{"unserved": errUnserved, "deaf": errDeaf}[p[1]]
					if got := f.unfit(now, heard); !errors.Is(got, want) {
						t.Errorf("%s: %v", step, got)
					}
					continue
				case "heard":
				case "begin":
					f.begins(node, now)
				case "taken":
					f.ends(node, "", now)
				default:
					f.ends(node, reason(p[1]), now)
				}
				heard = now
			}
		})
	}
}
