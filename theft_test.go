package yurtcoordinator

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	testName     = regexp.MustCompile(`^Test[A-Z]\w*$`)
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	scenarioRow  = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| (?:core|promise|field) \\|")
)

// tried are the names of all tests and scenarios.
func tried(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := eachSource(func(p string) error {
		if !strings.HasSuffix(p, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(p)
		for _, m := range testFunction.FindAllStringSubmatch(string(content), -1) {
			all[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	scenarios := scenarioRow.FindAllStringSubmatch(string(page), -1)
	for _, m := range scenarios {
		all[m[1]] = true
	}
	if len(all) < 1000 || len(scenarios) < 50 {
		t.Fatalf("found %d names, and %d scenarios; something is wrong with this test", len(all), len(scenarios))
	}
	return all
}

// untried says why a row of the table of credentials holds nothing; empty if tests and scenarios that exist try it.
func untried(row string, all map[string]bool) string {
	cells := strings.Split(strings.Trim(row, "| \n"), " | ")
	if len(cells) != 5 {
		return "want five cells"
	}
	for _, c := range cells {
		if strings.TrimSpace(c) == "" {
			return "a cell is empty"
		}
	}
	names := span.FindAllStringSubmatch(cells[4], -1)
	for _, m := range names {
		if !all[m[1]] {
			return "there is no test or scenario " + m[1]
		}
	}
	if len(names) == 0 {
		return "nothing tries what it does not give"
	}
	return ""
}

// TestWhatTheftGivesIsTried: each row of the threat model's table of credentials names tests and scenarios that exist, and so
// does the rest of the page.
func TestWhatTheftGivesIsTried(t *testing.T) {
	all := tried(t)
	content, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	_, table, found := strings.Cut(page, "\n## What theft of each credential gives\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| credential ") {
			continue
		}
		rows++
		if why := untried(line, all); why != "" {
			t.Errorf("%s: %s", why, line)
		}
	}
	if !found || rows < 15 {
		t.Errorf("found %d rows; something is wrong with this test", rows)
	}
	for _, m := range span.FindAllStringSubmatch(page, -1) {
		if testName.MatchString(m[1]) && !all[m[1]] {
			t.Errorf("the threat model names %s, which there is not", m[1])
		}
	}
	for _, lie := range []string{
		"| a key | all | nothing | at once | `TestThatThereIsNot` |", "| a key | all | nothing | at once | – |",
		"| a key | all |  | at once | `stolen-node` |", "| a key | all | `stolen-node` |",
	} {
		if untried(lie, all) == "" {
			t.Errorf("it holds that %s", lie)
		}
	}
}
