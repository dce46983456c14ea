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
