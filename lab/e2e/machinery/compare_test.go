package machinery

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	for _, tc := range []struct{ name, want, has, where string }{
		{"the same", `{"a":[1,{"b":null}]}`, `{"a":[1,{"b":null}]}`, ""},
		{"another value", `{"a":{"b":1}}`, `{"a":{"b":2}}`, "s.a.b"},
		{"another type", `{"a":{"b":1}}`, `{"a":"b"}`, "s.a"},
		{"one is missing", `{"a":1,"b":2}`, `{"a":1}`, "s.b"},
		{"one is too many", `{"a":1}`, `{"a":1,"b":null}`, "s.b"},
		{"an element", `{"a":[1,2]}`, `{"a":[1,3]}`, "s.a[1]"},
		{"another length", `{"a":[1,2]}`, `{"a":[1]}`, "s.a"},
		{"two places", `{"a":1,"b":1}`, `{"a":2,"b":2}`, "s.a s.b"},
		{"another status hides the rest", `{"status":200,"body":{"x":1}}`, `{"status":410,"body":{"message":"gone"}}`,
			"s.status"},
		{"the same status does not", `{"status":200,"body":{"x":1}}`, `{"status":200,"body":{"x":2}}`, "s.body.x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := Compare("c", []Step{{"s", object(t, tc.want)}}, []Step{{"s", object(t, tc.has)}})
			var where []string
			for _, d := range all {
				if d.Check != "c" {
					t.Errorf("the check is %q", d.Check)
				}
				where = append(where, d.Where)
			}
			if got := strings.Join(where, " "); got != tc.where {
				t.Errorf("%v", all)
			}
		})
	}
}

func TestCompareSteps(t *testing.T) {
	want := []Step{{"a", 1.0}, {"b", 2.0}}
	has := []Step{{"b", 2.0}, {"c", 3.0}}
	all := Compare("c", want, has)
	if len(all) != 2 || all[0].String() != "c: a: has nothing, want 1" || all[1].String() != "c: c: has 3, want nothing" {
		t.Errorf("%v", all)
	}
}

func TestOtherStatusTellsMessages(t *testing.T) {
	all := Compare("c", []Step{{"s", object(t, `{"status":200}`)}},
		[]Step{{"s", object(t, `{"status":410,"refusal":{"message":"gone"}}`)}})
	if len(all) != 1 || all[0].String() != `c: s.status: has [410,"gone"], want [200]` {
		t.Errorf("%v", all)
	}
}

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"*", "a\nb", true}, {"a*c", "abc", true}, {"a*c", "abcd", false}, {"a.b", "axb", false},
		{"*.events[4].x", "s.events[4].x", true}, {"*.events[4].x", "s.events[5].x", false}, {"a", "a", true}, {"", "a", false},
	} {
		if glob(tc.pattern, tc.s) != tc.want {
			t.Errorf("%q matches %q: %v", tc.pattern, tc.s, !tc.want)
		}
	}
}

func TestJudge(t *testing.T) {
	all := []Difference{{Check: "list/x", Where: "s.a"}, {Check: "list/y", Where: "s.b"}}
	for _, tc := range []struct {
		name          string
		may           []Exception
		faults, stale int
	}{
		{"nothing is allowed", nil, 2, 0},
		{"one is", []Exception{{Sides: []string{"hub"}, Check: "list/x", Where: "*"}}, 1, 0},
		{"both are", []Exception{{Sides: []string{"hub"}, Check: "list/*", Where: "s.*"}}, 0, 0},
		{"by two, of which each counts", []Exception{
			{Sides: []string{"hub"}, Check: "list/*", Where: "*"}, {Sides: []string{"hub"}, Check: "*", Where: "s.b"},
		}, 0, 0},
		{"on another side", []Exception{{Sides: []string{"other"}, Check: "*", Where: "*"}}, 2, 0},
		{"what is no longer so", []Exception{{Sides: []string{"hub"}, Check: "get/*", Where: "*"}}, 2, 1},
		{"at another place", []Exception{{Sides: []string{"hub"}, Check: "list/x", Where: "s.b"}}, 2, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			faults, stale := Judge("hub", all, tc.may)
			if len(faults) != tc.faults || len(stale) != tc.stale {
				t.Errorf("faults %v, stale %v", faults, stale)
			}
			if err := complain("hub", all, tc.may); (err != nil) != (tc.faults+tc.stale > 0) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestExceptions holds the table against what it must be: every line with its reason, and for checks that there are.
func TestExceptions(t *testing.T) {
	names := []string{"kubectl"}
	for _, c := range All() {
		names = append(names, c.Name)
	}
	for _, e := range exceptions {
		if e.Reason == "" || len(e.Sides) == 0 || e.Where == "*" {
			t.Errorf("%s: want a reason, sides, and less than everything", e)
		}
		found := false
		for _, name := range names {
			found = found || glob(e.Check, name)
		}
		if !found {
			t.Errorf("%s: there is no such check", e)
		}
		for _, side := range e.Sides {
			if side != HubNode && side != HubKept && side != HubToken {
				t.Errorf("%s: there is no side %q", e, side)
			}
		}
	}
	if len(exceptionsOf("kubectl")) >= len(exceptionsOf(names...)) {
		t.Error("kubectl's are all")
	}
}

func TestChecksHaveNames(t *testing.T) {
	seen := map[string]bool{}
	reads := 0
	for _, c := range All() {
		if c.Name == "" || seen[c.Name] || c.run == nil {
			t.Errorf("%q: want a name of its own, and something to run", c.Name)
		}
		seen[c.Name] = true
		if c.Reads {
			reads++
		}
	}
	if reads == 0 || reads == len(seen) {
		t.Errorf("%d of %d checks only read", reads, len(seen))
	}
}
