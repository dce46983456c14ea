package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/pages"
)

// TestEveryCommandIsRun: each command that a page shows is run by a scenario or a test, or the reason why not is written down.
func TestEveryCommandIsRun(t *testing.T) {
	all, err := pages.Steps("..")
	if err != nil {
		t.Fatal(err)
	}
	run, excused := 0, 0
	for _, s := range all {
		by, reason := runBy(s)
		switch {
		case len(by) > 0:
			run++
		case reason != "":
			excused++
		default:
			t.Errorf("%s:%d: nothing runs %q: give it to a scenario that follows this page (Scenario.Pages), or say in "+
				"e2e/shown.go why nothing can", s.Page, s.Line, s.Text)
		}
	}
	t.Logf("%d commands of pages: %d are run, %d have a reason why not", len(all), run, excused)
	if run < 211 { // it may grow, and not shrink
		t.Errorf("of %d commands %d are run, want 211 at least", len(all), run)
	}
}

// TestNothingIsSaidOfCommandsThatAreGone: readings and reasons are about commands that pages have.
func TestNothingIsSaidOfCommandsThatAreGone(t *testing.T) {
	all, err := pages.Steps("..")
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
	for _, e := range exceptions {
		if e.begins == "" {
			t.Errorf("%s: a reason is for single commands, not for a page: %s", e.page, e.reason)
		}
		if !slices.ContainsFunc(all, func(s pages.Step) bool { return s.Page == e.page && strings.HasPrefix(s.Text, e.begins) }) {
			t.Errorf("%s has no command that begins with %q", e.page, e.begins)
		}
		if file, name, ok := strings.Cut(e.test, " "); ok {
			text, err := os.ReadFile("../" + file)
			if err != nil || !strings.Contains(string(text), "func "+name+"(t *testing.T)") {
				t.Errorf("%s: no test %s in %s: %v", e.page, name, file, err)
			}
		}
	}
}
