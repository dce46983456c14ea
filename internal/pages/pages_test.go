package pages

import (
	"reflect"
	"testing"
)

func TestCommands(t *testing.T) {
	const page = "# Title\n\nRun `a b`.\n\n```\n$ a b   # says c\n# nothing\na c \\\n  --flag x | head\nd > file\n\n" +
		"  a e && f\n```\na no\n```bash\na g <<END\n```\n"
	want := []Command{
		{Line: 6, Words: []string{"a", "b"}},
		{Line: 8, Words: []string{"a", "c", "--flag", "x"}},
		{Line: 10, Words: []string{"d"}},
		{Line: 12, Words: []string{"a", "e"}},
		{Line: 16, Words: []string{"a", "g"}},
	}
	if got := commands(page); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
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
}
