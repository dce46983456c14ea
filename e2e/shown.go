package e2e

import (
	"fmt"
	"slices"
	"strings"

	"yurtcoordinator/internal/pages"
)

// exception is a command of a page that no scenario runs.
type exception struct {
	page, begins string
	// test is the test that runs it, as file and name; empty means that nothing does.
	test string
	// reason says why nothing does, or what the test does.
	reason string
}

// exceptions are the commands of pages that no scenario runs.
var exceptions = []exception{
	{"docs/releases.md", "base64", signedTest, "openssl verifies what we sign"},
	{"docs/releases.md", "openssl", signedTest, "openssl verifies what we sign"},
	{"docs/releases.md", "sha256sum", signedTest, "sha256sum finds what is listed"},
	{"docs/benchmarks.md", "make bench", "", "takes an hour; each part of it is run by `pages-bench`"},
}

// signedTest runs the commands of docs/releases.md that verify a release.
const signedTest = "hack/release/main_test.go TestThePageVerifies"

// runBy says what runs a command of a page: scenarios, or a test. Nobody runs it if the reason why is all that there is.
func runBy(s pages.Step) (by []string, reason string) {
	for _, scenario := range All() {
		for _, r := range scenario.Pages {
			if r.Covers(s) && !slices.Contains(by, scenario.Name) {
				by = append(by, scenario.Name)
			}
		}
	}
	if words := strings.Fields(s.Text); len(words) > 2 && strings.HasSuffix(words[0], "yurtlab") && words[1] == "run" {
		if _, err := Find(words[2]); err == nil && !slices.Contains(by, words[2]) {
			by = append(by, words[2])
		}
	}
	for _, e := range exceptions {
		if e.page != s.Page || !strings.HasPrefix(s.Text, e.begins) {
			continue
		}
		if e.test == "" {
			return by, e.reason
		}
		return append(by, e.test[strings.LastIndex(e.test, " ")+1:]), e.reason
	}
	return by, ""
}

// shown writes which scenario follows which page, and which commands nothing runs. all are the commands of all pages.
func shown(all []pages.Step) string {
	var b strings.Builder
	b.WriteString("\n## Commands of the pages\n\nA scenario or a test types each command in a code block of a page as it " +
		"stands there, with the lab's names in place of the page's. A test fails if a page shows a command that nothing types " +
		"and that is not in the second table.\n\n| page | followed by |\n| --- | --- |\n")
	var rows []string
	of := map[string][]string{}
	for _, s := range all {
		by, _ := runBy(s)
		if len(by) > 0 && of[s.Page] == nil {
			rows = append(rows, s.Page)
		}
		for _, name := range by {
			if name = "`" + name + "`"; !slices.Contains(of[s.Page], name) {
				of[s.Page] = append(of[s.Page], name)
			}
		}
	}
	for _, page := range rows {
		fmt.Fprintf(&b, "| %s | %s |\n", linked(page), strings.Join(of[page], ", "))
	}
	b.WriteString("\n| nothing types | of | because it |\n| --- | --- | --- |\n")
	for _, e := range exceptions {
		if e.test == "" {
			fmt.Fprintf(&b, "| `%s …` | %s | %s |\n", e.begins, linked(e.page), e.reason)
		}
	}
	return b.String()
}

// linked is a page as docs/scenarios.md links to it.
func linked(page string) string {
	target, inDocs := strings.CutPrefix(page, "docs/")
	if !inDocs {
		target = "../" + page
	}
	return fmt.Sprintf("[%s](%s)", page, target)
}
