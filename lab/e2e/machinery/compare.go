package machinery

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Difference is one place in which two transcripts of a check differ.
type Difference struct {
	// Check and Where (the step, and the path into what was seen) name the place.
	Check, Where string
	Want, Has    any
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: has %s, want %s", d.Check, d.Where, short(d.Has), short(d.Want))
}

// absent stands for a missing value.
type absent struct{}

func short(v any) string {
	if v == (absent{}) {
		return "nothing"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	const most = 300
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}

// Compare returns how a canonical transcript of a check differs from the wanted one.
func Compare(check string, want, has []Step) []Difference {
	var out []Difference
	seen := map[string]any{}
	for _, s := range has {
		seen[s.Name] = s.Seen
	}
	for _, s := range want {
		other, ok := seen[s.Name]
		if !ok {
			out = append(out, Difference{check, s.Name, s.Seen, absent{}})
			continue
		}
		delete(seen, s.Name)
		if d, ok := otherwiseEnded(s.Seen, other); ok {
			d.Check, d.Where = check, s.Name+d.Where
			out = append(out, d)
			continue
		}
		differ(s.Name, s.Seen, other, func(where string, want, has any) {
			out = append(out, Difference{check, where, want, has})
		})
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, Difference{check, name, absent{}, seen[name]})
	}
	return out
}

// otherwiseEnded returns the status as the only difference of two answers with different statuses. Then the other differences
// are to be expected.
func otherwiseEnded(want, has any) (Difference, bool) {
	w, okWant := want.(map[string]any)
	h, okHas := has.(map[string]any)
	if !okWant || !okHas || reflect.DeepEqual(w["status"], h["status"]) {
		return Difference{}, false
	}
	told := func(seen map[string]any) any {
		for _, part := range []string{"body", "refusal"} {
			if said, ok := seen[part].(map[string]any); ok && said["message"] != nil {
				return []any{seen["status"], said["message"]}
			}
		}
		if complaint, ok := seen["stderr"]; ok { // of kubectl
			return []any{seen["status"], seen["stdout"], complaint}
		}
		return []any{seen["status"]}
	}
	return Difference{Where: ".status", Want: told(w), Has: told(h)}, true
}

// differ reports every place in which two JSON values differ. Arrays of different lengths differ as a whole.
func differ(where string, want, has any, report func(where string, want, has any)) {
	switch w := want.(type) {
	case map[string]any:
		h, ok := has.(map[string]any)
		if !ok {
			report(where, want, has)
			return
		}
		keys := slices.Collect(maps.Keys(w))
		for key := range h {
			if _, ok := w[key]; !ok {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			inWant, ok := w[key]
			if !ok {
				inWant = absent{}
			}
			inHas, ok := h[key]
			if !ok {
				inHas = absent{}
			}
			differ(where+"."+key, inWant, inHas, report)
		}
	case []any:
		h, ok := has.([]any)
		if !ok || len(h) != len(w) {
			report(where, want, has)
			return
		}
		for i := range w {
			differ(fmt.Sprintf("%s[%d]", where, i), w[i], h[i], report)
		}
	default:
		if !reflect.DeepEqual(want, has) {
			report(where, want, has)
		}
	}
}

// Exception is a difference that is intended, or at least known.
type Exception struct {
	// Sides are where it occurs. Check and Where match those of a Difference; * matches anything.
	Sides        []string
	Check, Where string
	// Reason says why, and where that is documented.
	Reason string
	// Fault says that it is known but not intended. The exception goes when the fault is fixed.
	Fault bool
}

func (e Exception) String() string { return fmt.Sprintf("%s: %s", e.Check, e.Where) }

// covers reports whether the exception covers a side's difference.
func (e Exception) covers(d Difference) bool { return glob(e.Check, d.Check) && glob(e.Where, d.Where) }

func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile(`\A(?s:` + strings.Join(parts, ".*") + `)\z`).MatchString(s)
}

// Judge returns the differences of a side that no exception covers. It also returns the exceptions of that side that cover no
// difference, which are obsolete.
func Judge(side string, all []Difference, exceptions []Exception) (faults []Difference, stale []Exception) {
	used := make([]bool, len(exceptions))
	for _, d := range all {
		covered := false
		for i, e := range exceptions {
			if slices.Contains(e.Sides, side) && e.covers(d) {
				used[i], covered = true, true
			}
		}
		if !covered {
			faults = append(faults, d)
		}
	}
	for i, e := range exceptions {
		if slices.Contains(e.Sides, side) && !used[i] {
			stale = append(stale, e)
		}
	}
	return faults, stale
}
