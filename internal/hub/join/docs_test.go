package join

import (
	"testing"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/pages"
)

// TestDocumentedCommands: the pages give `yurthub join` and `yurthub reset` no flag that they do not know.
func TestDocumentedCommands(t *testing.T) {
	for command, addFlags := range map[string]func(*pflag.FlagSet){"join": (&Config{}).AddFlags, "reset": (&Removal{}).AddFlags} {
		all, err := pages.Commands("../../..", "yurthub", command)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			t.Errorf("no page shows yurthub %s; something is wrong with this test", command)
		}
		fs := pflag.NewFlagSet(command, pflag.ContinueOnError)
		addFlags(fs)
		for _, c := range all {
			if err := fs.Parse(c.Words[2:]); err != nil || fs.NArg() > 0 {
				t.Errorf("%s:%d: %v: %v %v", c.Page, c.Line, c.Words, err, fs.Args())
			}
		}
		if err := fs.Parse([]string{"--nowhere"}); err == nil {
			t.Errorf("yurthub %s takes any flag", command)
		}
	}
}
