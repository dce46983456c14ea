package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/pages"
)

// TestEveryCommandIsRun: a scenario or a test runs each command that a page shows.
func TestEveryCommandIsRun(t *testing.T) {
	all, err := pages.Steps("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(runBy(s)) == 0 {
			t.Errorf("%s:%d: nothing runs %q: give it to a scenario that follows this page (Scenario.Pages)", s.Page, s.Line,
				s.Text)
		}
	}
	if len(all) < 207 { // so many there were once: are they all found?
		t.Errorf("pages have %d commands, want 207 at least", len(all))
	}
}

// TestNothingIsSaidOfCommandsThatAreGone: readings and tests are of commands that pages have.
func TestNothingIsSaidOfCommandsThatAreGone(t *testing.T) {
	all, err := pages.Steps("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range All() {
		for _, r := range scenario.Pages {
			if stale := r.Stale(all); len(stale) > 0 {
				t.Errorf("%s: %s has no commands that begin with %q", scenario.Name, r.Page, stale)
			}
		}
	}
	for _, c := range tested {
		if !slices.ContainsFunc(all, func(s pages.Step) bool { return s.Page == c.page && strings.HasPrefix(s.Text, c.begins) }) {
			t.Errorf("%s has no command that begins with %q", c.page, c.begins)
		}
		file, name, _ := strings.Cut(c.test, " ")
		text, err := os.ReadFile("../../" + file)
		if err != nil || !strings.Contains(string(text), "func "+name+"(t *testing.T)") {
			t.Errorf("%s: no test %s in %s: %v", c.page, name, file, err)
		}
	}
}
