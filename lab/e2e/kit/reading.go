package kit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/pages"
)

// Reading is what a scenario runs of a page: commands in the page's own words and order, as somebody types them who follows it.
type Reading struct {
	// Page is relative to the repository's root.
	Page string
	// Only are the beginnings of the commands that are run; nil means all of the page. But are the beginnings of those that are
	// not.
	Only, But []string
	// Instead are pairs, as strings.NewReplacer takes them: a text of the page, and the text that replaces it in the lab.
	Instead []string
	// Notes are about single commands.
	Notes []Note
}

// Note is about the commands of a Reading that begin in one way.
type Note struct {
	Begins string
	// Instead is like the Reading's Instead, and is applied before it.
	Instead []string
	// On is the node that the command is typed on; empty means the place of an operator who reaches the cloud and the pool.
	On string
	// Types is what is typed to the command.
	Types string
	// Prints is a regular expression that what the command prints must match.
	Prints string
	// GoesOn is set for a command that does not end by itself. It is ended as soon as it has printed Prints.
	GoesOn bool
	// Interrupted is the time within which the command must end after Ctrl-C; 0 means that it is killed instead.
	Interrupted time.Duration
	// Soon repeats a command until it succeeds and prints Prints, because what it shows takes some time.
	Soon bool
	// Within is how long it may take; 0 means a minute.
	Within time.Duration
	// Before and After run before and after each such command; nil means nothing.
	Before, After func(r *Reader)
}

// Covers reports whether a step of a page is run.
func (r Reading) Covers(s pages.Step) bool {
	return s.Page == r.Page && (r.Only == nil || begins(s, r.Only)) && !begins(s, r.But)
}

func begins(s pages.Step, with []string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasPrefix(s.Text, w) })
}

// Stale returns what the reading says of commands that its page does not have.
func (r Reading) Stale(page []pages.Step) []string {
	said := slices.Concat(r.Only, r.But)
	for _, n := range r.Notes {
		said = append(said, n.Begins)
	}
	return slices.DeleteFunc(said, func(text string) bool {
		return slices.ContainsFunc(page, func(s pages.Step) bool { return s.Page == r.Page && strings.HasPrefix(s.Text, text) })
	})
}

// note returns the note for a step. Of several notes it is the one with the longest beginning of the command.
func (r Reading) note(s pages.Step) (found Note) {
	for _, n := range r.Notes {
		if strings.HasPrefix(s.Text, n.Begins) && len(n.Begins) >= len(found.Begins) {
			found = n
		}
	}
	return found
}

// command returns the command that is run for a step. The pairs in words are applied last.
func (r Reading) command(s pages.Step, words []string) string {
	return strings.NewReplacer(slices.Concat(r.note(s).Instead, r.Instead, words)...).Replace(s.Text)
}

// headersMissing returns the first line of headers that a page shows and a command has not printed; empty means that none is
// missing. A line of headers has at least two words, in capitals.
func headersMissing(shown, printed string) string {
	for line := range strings.Lines(shown) {
		want := strings.Fields(line)
		if len(want) < 2 || strings.ToUpper(line) != line || strings.ToLower(line) == line {
			continue
		}
		has := func(l string) bool { return slices.Equal(strings.Fields(l), want) }
		if !slices.ContainsFunc(strings.Split(printed, "\n"), has) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// unread returns an error that names a command of the scenario's pages that it has not run.
func (t *T) unread() error {
	for _, r := range t.scenario.Pages {
		all, err := pages.StepsOf(t.Repository(), r.Page)
		if err != nil {
			return err
		}
		for _, s := range all {
			if r.Covers(s) && !t.ran(s) {
				return fmt.Errorf("%s:%d: the scenario has not run %s", s.Page, s.Line, s.Text)
			}
		}
	}
	return nil
}

// HasRun says that the scenario has run a step of a page.
func (t *T) HasRun(s pages.Step) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil {
		t.steps = map[string]bool{}
	}
	t.steps[at(s)] = true
}

func (t *T) ran(s pages.Step) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.steps[at(s)]
}

// at returns the place of a step: its page and line.
func at(s pages.Step) string { return fmt.Sprintf("%s:%d", s.Page, s.Line) }
