package plugin

import (
	"strings"
	"testing"
)

// TestNothingThatNodesWriteMovesTheCursor: a leader's name and the reason for a state are texts of nodes.
func TestNothingThatNodesWriteMovesTheCursor(t *testing.T) {
	const evil = "a1\x1b[2J\r"
	for form, show := range map[string]func(*printer) error{
		"":     func(p *printer) error { return p.leader(&Pool{Leader: evil}) },
		"wide": func(p *printer) error { return p.explanation(Explanation{Node: "n", Because: evil}) },
		"jsonpath={.because}": func(p *printer) error {
			return p.explanation(Explanation{Node: "n", Because: evil})
		},
	} {
		if got := printed(t, form, show); strings.ContainsAny(got, "\x1b\r") || !strings.Contains(got, `a1\x1b[2J\x0d`) {
			t.Errorf("-o %s: %q", form, got)
		}
	}
}

// TestVisible: whatever a node writes, a person sees all of it, where it belongs.
func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain, über, 日本, 🙂\n\ttext":                "plain, über, 日本, 🙂\n\ttext",
		"\x1b]0;title\x07\x1b[2J\x1b[1A\rConnected": `\x1b]0;title\x07\x1b[2J\x1b[1A\x0dConnected`,
		"\u009b31m, \u0085":                         `\u009b31m, \u0085`,
		"a \u202eevil\u202c \u2066b\u2069":          `a \u202eevil\u202c \u2066b\u2069`,
		"no text: \xff\x9b":                         `no text: \xff\x9b`,
		red + "ours" + reset + "\x1b[33;5mtheirs":   red + "ours" + reset + `\x1b[33;5mtheirs`,
		"\x7f\x00": `\x7f\x00`,
	} {
		var out strings.Builder
		if n, err := Visible(&out).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: %q (%d, %v), want %q", text, out.String(), n, err, want)
		}
	}
}
