package e2e

import (
	"fmt"
	"slices"
	"strings"

	"yurtcoordinator/internal/pages"
)

// tested are the commands of pages that a test runs, and no scenario.
var tested = []struct {
	page, begins string
	test         string // file and name
}{
	{"docs/releases.md", "base64", signedTest},
	{"docs/releases.md", "openssl", signedTest},
	{"docs/releases.md", "sha256sum", signedTest},
}

// signedTest runs the commands of docs/releases.md that verify a release.
const signedTest = "hack/release/main_test.go TestThePageVerifies"

// runBy returns what runs a command of a page: scenarios, or a test.
func runBy(s pages.Step) (by []string) {
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
	for _, c := range tested {
		if c.page == s.Page && strings.HasPrefix(s.Text, c.begins) {
			by = append(by, c.test[strings.LastIndex(c.test, " ")+1:])
		}
	}
	return by
}

// shown writes which scenario follows which page. all are the commands of all pages.
func shown(all []pages.Step) string {
	var b strings.Builder
	b.WriteString("\n## Commands of the pages\n\nA scenario or a test types each command in a code block of a page as it " +
		"stands there, with the lab's names in place of the page's, and with minutes where a benchmark or all versions of " +
		"Kubernetes would take hours. A test fails if a page shows a command that nothing types.\n\n" +
		"| page | followed by |\n| --- | --- |\n")
	var rows []string
	of := map[string][]string{}
	for _, s := range all {
		by := runBy(s)
		if of[s.Page] == nil {
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
