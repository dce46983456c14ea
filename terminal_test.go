package yurtcoordinator

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// terminals are the lines of our programs that name what may be a terminal, by the reason why what others write does nothing
// there.
var terminals = map[string][]string{
	"it is escaped": {
		"if out := logs.Visible(os.Stdout); len(os.Args) > 1 {",
		"err := plugin.New(os.Stdout, os.Stderr).ExecuteContext(ctx)", // but for c.output
		`fmt.Fprintln(plugin.Visible(os.Stderr), "error:", err)`,
		`form.Tell(os.Stderr, "yurthub", os.Args[1:], err)`,
		`form.Tell(os.Stderr, "yurt-coordinator", os.Args[1:], err)`,
		"form.Tell(os.Stderr, cloud.Name, os.Args[1:], err)",
		"p, err := flags.printer(c.output)", "switch out := Visible(c.output); {",
	},
	"flags and the version": {
		"err = flagfile.Parse(fs, os.Args[1:], os.Stdout, config.Versioned)",
		"if err := flagfile.Parse(fs, args, os.Stdout, nil); err != nil {",
		"if err := flagfile.Parse(fs, os.Args[1:], os.Stdout, nil); errors.Is(err, flagfile.ErrHelp) {",
	},
	"names of files of this machine": {
		`fmt.Fprintln(os.Stderr, "yurthub: it is faulty, as", file, "says")`, "_, err = fmt.Fprintln(c.output, file)",
	},
	"a pool's name, which is a DNS label, and a link of ours": {
		"return showPage(cmd.Context(), c.output, access, args[0], port)",
		"return makeLink(cmd.Context(), c.output, access, args[0], life)", // linksOf verifies what the coordinator says
	},
	"a program reads it: lines of JSON, a kubeconfig, an archive": {
		"c.AuditLog = os.Stdout", "_, err = c.output.Write(content)", "err = write(c.output)",
	},
}

var mayBeATerminal = regexp.MustCompile(`\bos\.Std(?:out|err)\b|\bc\.output\b`)

// TestWhatOthersWriteDoesNothingToATerminal: whoever prints somewhere else says here why a node, a Pod or a server can't move the
// cursor by it.
func TestWhatOthersWriteDoesNothingToATerminal(t *testing.T) {
	known := slices.Concat(slices.Collect(maps.Values(terminals))...)
	found := map[string]bool{}
	err := eachSource(func(p string) error {
		ours := within(p, "cmd") || within(p, "internal") && !within(p, "internal/sim") && !within(p, "internal/cloud/cloudtest")
		if !ours || strings.HasSuffix(p, "_test.go") || strings.Contains(p, "/testdata/") {
			return nil
		}
		content, err := os.ReadFile(p)
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSpace(line)
			if !mayBeATerminal.MatchString(line) || strings.HasPrefix(line, "//") {
				continue
			}
			found[line] = true
			if !slices.Contains(known, line) {
				t.Errorf("%s: %s\nwrites to a terminal, unescaped? Use logs.Visible, or say in terminals why not", p, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range known {
		if !found[line] {
			t.Errorf("no program has the line %s", line)
		}
	}
}
