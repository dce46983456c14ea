package yurtlab

import (
	"testing"

	"yurtcoordinator/internal/pages"
	"yurtcoordinator/lab/e2e"
)

// TestDocumentedCommands: the pages show no command of yurtlab that it has not, with no flag that it does not know.
func TestDocumentedCommands(t *testing.T) {
	checked := 0
	for _, program := range []string{"bin/yurtlab", "yurtlab"} {
		all, err := pages.Commands("../..", program)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			checked++
			if err := understood(c.Words[1:]); err != nil {
				t.Errorf("%s:%d: %v: %v", c.Page, c.Line, c.Words, err)
			}
		}
	}
	if checked < 20 {
		t.Errorf("found %d commands; something is wrong with this test", checked)
	}
	for _, lie := range [][]string{{"fly"}, {"up", "--nowhere"}, {"link", "cut"}, {"run", "no-such-scenario"}} {
		if err := understood(lie); err == nil {
			t.Errorf("%v is understood", lie)
		}
	}
}

// understood parses a command line, and runs nothing.
func understood(words []string) error {
	cmd, rest, err := New().Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if cmd.Name() == "run" && len(args) == 1 && args[0] != "NAME" {
		if _, err := e2e.Find(args[0]); err != nil {
			return err
		}
	}
	return cmd.ValidateArgs(args)
}
