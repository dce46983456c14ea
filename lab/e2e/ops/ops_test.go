package ops

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNormal(t *testing.T) {
	a := normal("NAME   AGE\nb  3m2s\na   5s\n  resourceVersion: \"12\"\n", true)
	b := normal("NAME AGE\nb     4m\na     (x3 over 37s)\n", true)
	if want := "NAME AGE\na TIME\nb TIME"; a != want || b == a {
		t.Errorf("%q, %q; want %q and another", a, b, want)
	}
	for _, c := range [][2]string{
		{"Renewed: Sun, 22 Nov 2026 03:47:47 +0000", "Renewed: Mon, 23 Nov 2026 03:47:48 +0000"},
		{`t: "2026-11-22T03:47:47Z"`, `t: "2027-11-22T03:47:47.5Z"`},
		{"Started 37s (x2 over 40s)", "Started 2d3h"},
		{"Started 37s", "Started 2m ago"},
	} {
		if x, y := normal(c[0], false), normal(c[1], false); x != y {
			t.Errorf("%q and %q differ", x, y)
		}
	}
	if x, y := normal("restarts 1", false), normal("restarts 2", false); x == y {
		t.Error("a number is not seen")
	}
}

func TestFirstLine(t *testing.T) {
	for _, c := range [][3]string{
		{"a\nb", "a\nb", "nothing differs"}, {"a", "a\nb", `line 2 is missing: "b"`}, {"a\nb", "a", `line 2 is too many: "b"`},
		{"a\nx", "a\nb", `line 2 is "x", want "b"`},
	} {
		if got := firstLine(c[0], c[1]); got != c[2] {
			t.Errorf("%q, want %q", got, c[2])
		}
	}
}

// TestTheRunbookIsTried holds the document against what the scenario can run.
func TestTheRunbookIsTried(t *testing.T) {
	commands, err := docCommands("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) < 20 || !commands[0].before || commands[len(commands)-1].before {
		t.Errorf("%d commands: %+v", len(commands), commands)
	}
	for kind, is := range map[string]func(docCommand) bool{"goes on": docCommand.goesOn, "terminal": docCommand.onTerminal} {
		if !slices.ContainsFunc(commands, is) {
			t.Errorf("none of them: %s", kind)
		}
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"```\nrm -rf /\n```", "```\nkubectl get pods\n"} {
		if err := os.WriteFile(filepath.Join(root, operationsPage.Page), []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := docCommands(root); err == nil {
			t.Errorf("%q gives %+v", wrong, all)
		}
	}
}
