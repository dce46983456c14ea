package plugin

import (
	"io"
	"testing"

	docpages "yurtcoordinator/internal/pages"
)

// TestDocumentedCommands: the pages show no command of kubectl yurt that it has not, with no flag that it does not know.
func TestDocumentedCommands(t *testing.T) {
	all, err := docpages.Commands("../..", "kubectl", "yurt")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 3 {
		t.Fatalf("found %v; something is wrong with this test", all)
	}
	for _, c := range all {
		if err := understood(c.Words[2:]); err != nil {
			t.Errorf("%s:%d: %v: %v", c.Page, c.Line, c.Words, err)
		}
	}
	for _, lie := range [][]string{{"fly"}, {"status", "--nowhere"}, {"why"}} {
		if err := understood(lie); err == nil {
			t.Errorf("%v is understood", lie)
		}
	}
}

// understood parses a command line, and runs nothing.
func understood(words []string) error {
	cmd, rest, err := New(io.Discard, io.Discard).Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
