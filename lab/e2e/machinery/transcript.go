package machinery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Step is one thing that a client saw: a JSON value under a name that is unique in its check.
type Step struct {
	Name string
	Seen any
}

// Transcript is what a client saw in one check, as it came.
type Transcript struct {
	Steps []Step
	// Aliases are names that differ between runs: of namespaces, groups and the like.
	Aliases map[string]string
}

// add appends what was seen. It adds a number to a name that already exists.
func (t *Transcript) add(name string, seen any) error {
	raw, err := json.Marshal(seen)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	unique := name
	for n := 2; slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Name == unique }); n++ {
		unique = fmt.Sprintf("%s (%d)", name, n)
	}
	t.Steps = append(t.Steps, Step{unique, value})
	return nil
}

var (
	patternUID       = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	patternTime      = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	patternServiceIP = regexp.MustCompile(`\b10\.96\.\d{1,3}\.\d{1,3}\b`)
	patternAge       = regexp.MustCompile(`^(\d+[smhd])+$`)
	patternNumber    = regexp.MustCompile(`\b\d{2,}\b`)
)

// names gives canonical names to values, in the order in which they are first seen.
type names struct {
	prefix string
	known  map[string]string
}

func (n *names) of(value string) string {
	name, ok := n.known[value]
	if !ok {
		name = fmt.Sprintf("%s-%d", n.prefix, len(n.known)+1)
		n.known[value] = name
	}
	return name
}

// canonizer replaces what differs between runs.
type canonizer struct {
	aliases  []string // pairs, longest first
	uids     names
	ips      names
	versions names
}

// Canonical returns the steps without anything that only this run has.
func (t *Transcript) Canonical() []Step {
	c := &canonizer{
		uids: names{"uid", map[string]string{}}, ips: names{"service-ip", map[string]string{}},
		versions: names{"version", map[string]string{}},
	}
	longest := func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(t.Aliases), longest) {
		c.aliases = append(c.aliases, name, t.Aliases[name])
	}
	out := make([]Step, 0, len(t.Steps))
	for _, s := range t.Steps {
		out = append(out, Step{c.text(s.Name), c.value("", s.Seen)})
	}
	return out
}

// isObject reports whether a JSON map is an object, whose resourceVersion is that of a write. The resourceVersion of a list, a
// Table or a bookmark says when that was made.
func isObject(m map[string]any) bool {
	kind, _ := m["kind"].(string)
	for _, content := range []string{"items", "rows"} {
		if _, ok := m[content]; ok {
			return false
		}
	}
	return !strings.HasSuffix(kind, "List") && kind != "Table" && kind != "Status"
}

// isBookmark reports whether a JSON map is an event without an object.
func isBookmark(m map[string]any) bool { return m["type"] == "BOOKMARK" }

func (c *canonizer) value(key string, v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = c.value("", e)
		}
		if key == "managedFields" {
			slices.SortFunc(out, byContent) // they are sorted by time, to the second
		}
		return out
	case map[string]any:
		return c.object(v, key)
	case string:
		if key == "message" {
			return patternNumber.ReplaceAllString(c.text(v), "N")
		}
		return c.text(v)
	default:
		return v
	}
}

func byContent(a, b any) int {
	// What came as JSON can be written as JSON, with sorted keys.
	first, _ := json.Marshal(a)
	second, _ := json.Marshal(b)
	return bytes.Compare(first, second)
}

// bookmarked is the key under which a bookmark's object is examined.
const bookmarked = "object of a bookmark"

func (c *canonizer) object(m map[string]any, at string) map[string]any {
	out := make(map[string]any, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) { // so that names are given in the same order each time
		as := key
		if key == "object" && isBookmark(m) {
			as = bookmarked
		}
		out[c.text(key)] = c.value(as, m[key])
	}
	meta, has := m["metadata"].(map[string]any)
	said, ok := out["metadata"].(map[string]any)
	if !has || !ok {
		return out
	}
	switch version, _ := meta["resourceVersion"].(string); {
	case version == "":
	case isObject(m) && at != bookmarked:
		said["resourceVersion"] = c.versions.of(version)
	default:
		said["resourceVersion"] = "some"
	}
	if token, _ := meta["continue"].(string); token != "" {
		said["continue"] = "token"
	}
	return out
}

// text returns a string without what differs between runs.
func (c *canonizer) text(s string) string {
	if patternAge.MatchString(s) {
		return "AGE"
	}
	s = strings.NewReplacer(c.aliases...).Replace(s)
	s = patternTime.ReplaceAllString(s, "TIME")
	s = patternUID.ReplaceAllStringFunc(s, c.uids.of)
	return patternServiceIP.ReplaceAllStringFunc(s, c.ips.of)
}
