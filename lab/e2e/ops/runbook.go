package ops

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"yurtcoordinator/internal/pages"
	"yurtcoordinator/lab/e2e/kit"
)

// figures are those of a line of kubectl top: CPU and memory.
var figures = regexp.MustCompile(`(?m)\s\d+m\s.*\s\d+Mi`)

// runbook is docs/operations.md: its commands in their order.
type runbook struct {
	commands []docCommand
	dir      string // where the commands run
	path     string // has a kubectl that is on the lab's network
	environ  []string
	settings map[string]string // what the document exports
	instead  map[string]string // what it exports only as an example
}

// operationsPage is what ops-while-cut runs.
var operationsPage = kit.Reading{Page: "docs/operations.md"}

// docCommand is a command of the document.
type docCommand struct {
	pages.Step
	before bool // it stands under the heading of what to do in advance
}

// docCommands returns the document's commands. root is the repository's directory.
func docCommands(root string) ([]docCommand, error) {
	steps, err := pages.StepsOf(root, operationsPage.Page)
	if err != nil {
		return nil, err
	}
	var all []docCommand
	for _, s := range steps {
		if !strings.HasPrefix(s.Text, "kubectl ") && !strings.HasPrefix(s.Text, "export ") {
			return nil, fmt.Errorf("line %d: %q is no command that is tried", s.Line, s.Text)
		}
		all = append(all, docCommand{s, s.Heading == "Before you need it"})
	}
	return all, nil
}

// goesOn reports whether a command ends only when somebody ends it.
func (c docCommand) goesOn() bool {
	words := strings.Fields(c.Text)
	return slices.Contains(words, "-f") || slices.Contains(words, "-w") || slices.Contains(words, "attach") ||
		slices.Contains(words, "port-forward")
}

func (c docCommand) onTerminal() bool { return slices.Contains(strings.Fields(c.Text), "-it") }

// newRunbook reads the document and prepares a place to run its commands.
func newRunbook(t *kit.T) *runbook {
	b := &runbook{settings: map[string]string{}, instead: map[string]string{"NODE": t.Node(anyNode(t)).Address()}}
	var err error
	b.commands, err = docCommands(filepath.Join(t.Config.Chart, "..", "..", ".."))
	t.Must(err)
	b.dir, err = os.MkdirTemp("", "yurtlab-runbook-")
	t.Must(err)
	t.Background.Add(1)
	context.AfterFunc(t.Ctx, func() {
		defer t.Background.Done()
		_ = os.RemoveAll(b.dir) // a leftover there does no harm
	})
	cmd, err := t.Lab.Kubectl(t.Ctx, atCloud, nil)
	t.Must(err)
	last := slices.IndexFunc(cmd.Args, func(a string) bool { return strings.HasPrefix(a, "--kubeconfig=") })
	if last < 0 {
		t.Fail("no kubeconfig in %v", cmd.Args)
	}
	b.settings["KUBECONFIG"] = strings.TrimPrefix(cmd.Args[last], "--kubeconfig=")
	script := "#!/bin/sh\nexec"
	for _, a := range cmd.Args[:last] {
		script += " '" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	b.path = filepath.Join(b.dir, "bin")
	t.Must(os.Mkdir(b.path, 0o700))
	t.Must(os.WriteFile(filepath.Join(b.path, "kubectl"), []byte(script+" \"$@\"\n"), 0o700))
	b.environ = cmd.Env
	return b
}

// anyNode returns a node that does not run the coordinator.
func anyNode(t *kit.T) string {
	host := t.Pool.CoordinatorNode()
	return t.Pool.Nodes()[slices.IndexFunc(t.Pool.Nodes(), func(name string) bool { return name != host })]
}

// run tries the commands to run in advance, or all others.
func (b *runbook) run(t *kit.T, before bool) {
	n := 0
	for _, c := range b.commands {
		if c.before != before {
			continue
		}
		n++
		if setting, ok := strings.CutPrefix(c.Text, "export "); ok {
			name, value, _ := strings.Cut(setting, "=")
			b.settings[name] = cmp.Or(b.instead[name], value)
		} else {
			b.try(t, c)
		}
		t.HasRun(c.Step)
	}
	if n == 0 {
		t.Fail("docs/operations.md has no commands")
	}
	t.Figure(map[bool]string{true: "runbook_commands_before", false: "runbook_commands"}[before], float64(n))
}

func (b *runbook) command(ctx context.Context, c docCommand) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Text)
	cmd.Dir = b.dir
	path := ""
	for _, e := range b.environ {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	cmd.Env = append(slices.Clone(b.environ), "PATH="+b.path+string(filepath.ListSeparator)+path)
	for name, value := range b.settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// try runs a command of the document. A command that does not end by itself must print something, and one on a terminal must do
// what is typed there.
func (b *runbook) try(t *kit.T, c docCommand) {
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	cmd := b.command(ctx, c)
	if !c.goesOn() && !c.onTerminal() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fail("docs/operations.md: %s: %v: %s", c.Text, err, out)
		}
		if strings.HasPrefix(c.Text, "kubectl top ") && !figures.Match(out) {
			t.Fail("docs/operations.md: %s: it prints no figures: %s", c.Text, out)
		}
		t.Say("%s: %d bytes", c.Text, len(out))
		return
	}
	r := begin(t, cmd, c.onTerminal())
	ended := false
	defer func() {
		if !ended {
			_ = r.end()
		}
	}()
	switch {
	case strings.Contains(c.Text, "port-forward"):
		says(t, r, c.Text, "Forwarding from")
		pageAt(t, c.Text, "127.0.0.1:8080")
	case strings.Contains(c.Text, "attach"):
		says(t, r, c.Text, "press")
		_, err := io.WriteString(r.input, "from-the-runbook\n")
		t.Must(err)
		says(t, r, c.Text, "from-the-runbook")
	case c.onTerminal():
		says(t, r, c.Text, "# ")
		_, err := io.WriteString(r.input, "exit\n")
		t.Must(err)
		err = <-r.ended
		ended = true
		if err != nil {
			t.Fail("docs/operations.md: %s: %v: %s", c.Text, err, r.printed())
		}
	default: // a log, a watch
		says(t, r, c.Text, "\n")
	}
}
