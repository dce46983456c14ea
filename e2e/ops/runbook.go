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

	"yurtcoordinator/e2e/kit"
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

// docCommand is a line of a code block.
type docCommand struct {
	text   string
	before bool // it stands under the heading of what to do in advance
}

// docCommands reads the commands in a document's code blocks. Each line there must be one.
func docCommands(text string) ([]docCommand, error) {
	var all []docCommand
	heading, inside := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case !inside && strings.HasPrefix(line, "#"):
			heading = strings.TrimLeft(line, "# ")
		case !inside || line == "":
		case strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "export "):
			all = append(all, docCommand{line, heading == "Before you need it"})
		default:
			return nil, fmt.Errorf("%q in a code block is no command that is tried", line)
		}
	}
	if inside {
		return nil, fmt.Errorf("a code block of %q does not end", heading)
	}
	return all, nil
}

// goesOn reports whether a command ends only when somebody ends it.
func (c docCommand) goesOn() bool {
	words := strings.Fields(c.text)
	return slices.Contains(words, "-f") || slices.Contains(words, "-w") || slices.Contains(words, "attach") ||
		slices.Contains(words, "port-forward")
}

func (c docCommand) onTerminal() bool { return slices.Contains(strings.Fields(c.text), "-it") }

// newRunbook reads the document and prepares a place to run its commands.
func newRunbook(t *kit.T) *runbook {
	text, err := os.ReadFile(filepath.Join(t.Config.Chart, "..", "..", "..", "docs", "operations.md"))
	t.Must(err)
	b := &runbook{settings: map[string]string{}, instead: map[string]string{"NODE": t.Node(anyNode(t)).Address()}}
	b.commands, err = docCommands(string(text))
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
		if setting, ok := strings.CutPrefix(c.text, "export "); ok {
			name, value, _ := strings.Cut(setting, "=")
			b.settings[name] = cmp.Or(b.instead[name], value)
			continue
		}
		b.try(t, c)
	}
	if n == 0 {
		t.Fail("docs/operations.md has no commands")
	}
	t.Figure(map[bool]string{true: "runbook_commands_before", false: "runbook_commands"}[before], float64(n))
}

func (b *runbook) command(ctx context.Context, c docCommand) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", c.text)
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

// try runs a command of the document. One that continues must print something, and one on a terminal must do what is
// typed there.
func (b *runbook) try(t *kit.T, c docCommand) {
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	cmd := b.command(ctx, c)
	if !c.goesOn() && !c.onTerminal() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fail("docs/operations.md: %s: %v: %s", c.text, err, out)
		}
		if strings.HasPrefix(c.text, "kubectl top ") && !figures.Match(out) {
			t.Fail("docs/operations.md: %s: it prints no figures: %s", c.text, out)
		}
		t.Say("%s: %d bytes", c.text, len(out))
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
	case strings.Contains(c.text, "port-forward"):
		says(t, r, c.text, "Forwarding from")
		pageAt(t, c.text, "127.0.0.1:8080")
	case strings.Contains(c.text, "attach"):
		says(t, r, c.text, "press")
		_, err := io.WriteString(r.input, "from-the-runbook\n")
		t.Must(err)
		says(t, r, c.text, "from-the-runbook")
	case c.onTerminal():
		says(t, r, c.text, "# ")
		_, err := io.WriteString(r.input, "exit\n")
		t.Must(err)
		err = <-r.ended
		ended = true
		if err != nil {
			t.Fail("docs/operations.md: %s: %v: %s", c.text, err, r.printed())
		}
	default: // a log, a watch
		says(t, r, c.text, "\n")
	}
}
