package pages

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSteps(t *testing.T) {
	const page = "# Title\n\nRun `a b`.\n\n```\n$ a b   # says c\nA  B\n\n1  2\n$ a c \\\n  --flag x | head\n```\n" +
		"## More\n```text\na drawing\n```\n```\n# nothing\nd > file\n\n  a e && f\n```\na no\n" +
		"1. item\n\n   ```sh\n   a g <<END\n   k: v  # a |\n   END\n   a h |\n       a i\n   ```\n"
	want := []Step{
		{Line: 6, Heading: "Title", Text: "a b   # says c", Shown: "A  B\n\n1  2\n"},
		{Line: 10, Heading: "Title", Text: "a c \\\n  --flag x | head"},
		{Line: 19, Heading: "More", Text: "d > file"},
		{Line: 21, Heading: "More", Text: "a e && f"},
		{Line: 27, Heading: "More", Text: "a g <<END\nk: v  # a |\nEND"},
		{Line: 30, Heading: "More", Text: "a h |\n    a i"},
	}
	got, err := steps(page)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	words := []string{"a b", "a c --flag x", "d", "a e", "a g", "a h"}
	for i, s := range got {
		if w := strings.Join(s.words(), " "); w != words[i] {
			t.Errorf("%q has the words %q, want %q", s.Text, w, words[i])
		}
	}
	for _, bad := range []string{"```\na\n", "```\na \\\n```", "```\na <<END\nb\n```", "```\nout\n$ a\n```"} {
		if got, err := steps(bad); err == nil {
			t.Errorf("%q gives %+v, want an error", bad, got)
		}
	}
}

func TestCommandsOfOurPages(t *testing.T) {
	all, err := Commands("../..", "make")
	if err != nil {
		t.Fatal(err)
	}
	readme := false
	for _, c := range all {
		readme = readme || c.Page == "README.md"
		if c.Words[0] != "make" || c.Line == 0 {
			t.Errorf("%+v: that does not begin with make", c)
		}
	}
	if !readme {
		t.Error("the README has no make command")
	}
	if _, err := Commands("nowhere"); err == nil {
		t.Error("a directory without a README has commands")
	}
	steps, err := StepsOf("../..", "docs/install.md")
	if err != nil || !slices.ContainsFunc(steps, func(s Step) bool { return strings.Contains(s.Text, "\nkind: NodePool\n") }) {
		t.Errorf("docs/install.md applies no NodePool, or: %v", err)
	}
}
