package kit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"yurtcoordinator/internal/pages"
)

// Reader runs the commands of pages as an operator would. It has the cloud's kubeconfig, a checkout of the repository and the
// chart that `make push` packs.
type Reader struct {
	*T
	// Dir is where commands are typed.
	Dir string
	// Enter returns a command that runs at the reader's place. By default that is an operator's desk.
	Enter func(ctx context.Context, argv ...string) (*exec.Cmd, error)
	// Words are pairs of a word of the pages and the word that replaces it in this lab. A Reading's own pairs come before them.
	Words []string
	// Environ are variables, as `export` sets them.
	Environ map[string]string
	// Tools is the directory of the programs that are found first.
	Tools string
}

// OnHost enters the machine of the lab itself, with the caches that builds have left.
func OnHost(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = os.Environ()
	return cmd, nil
}

// Repository is the directory of the repository.
func (t *T) Repository() string { return filepath.Join(t.Config.Chart, "..", "..", "..") }

// CloneTo returns a script that clones the repository to a directory. There it commits what is not committed in the repository
// yet, and gives the commit the tag of a release.
func (t *T) CloneTo(dir, tag string) string { return fmt.Sprintf(clone, t.Repository(), dir, tag) }

const clone = `git clone --quiet --no-checkout %[1]s %[2]s
git --git-dir=%[2]s/.git --work-tree=%[1]s add --all
cd %[2]s
export GIT_AUTHOR_NAME=lab GIT_AUTHOR_EMAIL=lab@localhost GIT_COMMITTER_NAME=lab GIT_COMMITTER_EMAIL=lab@localhost
git diff --cached --quiet HEAD || git commit --quiet --message "what is not committed yet"
git reset --quiet --hard
git tag --force %[3]s
`

// NewReader prepares a place for an operator, which is removed with the scenario.
func (t *T) NewReader() *Reader {
	dir, err := os.MkdirTemp("", "yurtlab-reader-")
	t.Must(err)
	t.Background.Add(1)
	context.AfterFunc(t.Ctx, func() {
		defer t.Background.Done()
		_ = os.RemoveAll(dir) // a leftover there does no harm
	})
	r := &Reader{
		T: t, Dir: dir, Tools: filepath.Join(dir, "tools"), Enter: t.Lab.Desk,
		Environ: map[string]string{"HOME": filepath.Join(dir, "home"), "KUBECONFIG": filepath.Join(dir, "cloud.kubeconfig")},
	}
	bins, err := t.Lab.Programs()
	t.Must(err)
	access, err := os.ReadFile(filepath.Join(t.Lab.Dir(), "pki", "admin.kubeconfig"))
	t.Must(err)
	t.Must(os.WriteFile(r.Environ["KUBECONFIG"], access, 0o600))
	self, err := os.Executable()
	t.Must(err)
	for _, d := range []string{"bin", "tools", "home", "examples", "dist/images"} {
		t.Must(os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	for link, to := range map[string]string{
		"tools/kubectl": bins.Kubectl, "tools/kubectl-yurt": bins.KubectlYurt, "bin/kubectl-yurt": bins.KubectlYurt,
		"tools/yurthub": bins.YurtHub, "tools/yurtlab": self, "bin/yurtlab": self,
		"deploy": filepath.Join(t.Repository(), "deploy"),
	} {
		t.Must(os.Symlink(to, filepath.Join(dir, link)))
	}
	if t.Config.Installed {
		r.pack(bins.Helm)
	}
	return r
}

// helmWrapper is Helm with the values of the lab that the command line does not give: in place of those that `make push` packs.
const helmWrapper = `#!/bin/bash
case $1 in
install|upgrade|template)
	for value in %[2]s; do
		[[ "$*" = *"${value%%%%=*}="* ]] || set -- "$@" --set-string="$value"
	done
esac
exec %[1]s "$@"
`

// pack installs Helm's wrapper, and puts the chart where `make push` leaves it.
func (r *Reader) pack(helm string) {
	values, err := r.Lab.ChartValues()
	r.Must(err)
	var quoted []string
	for _, v := range values {
		if registry, ok := strings.CutPrefix(v, "image.registry="); ok {
			r.Words = append(r.Words, "registry.example/edge", registry, "REGISTRY", registry)
		}
		quoted = append(quoted, "'"+strings.ReplaceAll(v, "'", `'\''`)+"'")
	}
	script := fmt.Sprintf(helmWrapper, helm, strings.Join(quoted, " "))
	r.Must(os.WriteFile(filepath.Join(r.Tools, "helm"), []byte(script), 0o700))
	r.Run("helm package " + r.Config.Chart + " --destination dist/images")
}

// Example puts an example where the pages have it, with words of the lab in place of its own, as pairs.
func (r *Reader) Example(name string, instead ...string) {
	content, err := os.ReadFile(filepath.Join(r.Repository(), "examples", name))
	r.Must(err)
	content = []byte(strings.NewReplacer(instead...).Replace(string(content)))
	r.Must(os.WriteFile(filepath.Join(r.Dir, "examples", name), content, 0o600))
}

// Read runs what a reading says of its page.
func (r *Reader) Read(reading Reading) { r.ReadBy(reading, nil) }

// ReadBy runs what a reading says of its page. run types a command elsewhere and returns what it printed; nil means here.
func (r *Reader) ReadBy(reading Reading, run func(command string) string) {
	all, err := pages.StepsOf(r.Repository(), reading.Page)
	r.Must(err)
	n := 0
	for _, s := range all {
		if !reading.Covers(s) {
			continue
		}
		n++
		note := reading.note(s)
		if note.Before != nil {
			note.Before(r)
		}
		start := time.Now()
		command := reading.command(s, r.Words)
		var printed string
		if run != nil {
			printed = run(command)
			r.Must(note.judge(printed))
		} else {
			printed = r.perform(at(s), command, note)
		}
		if missing := headersMissing(s.Shown, printed); missing != "" {
			r.Fail("%s: %s: it does not print %s, as the page shows:\n%s", at(s), command, missing, printed)
		}
		r.HasRun(s)
		first, _, _ := strings.Cut(command, "\n")
		r.Say("%s: %s (%.1fs, %d bytes)", at(s), first, time.Since(start).Seconds(), len(printed))
		if note.After != nil {
			note.After(r)
		}
	}
	if n == 0 {
		r.Fail("%s has no commands that are to be run", reading.Page)
	}
	r.Figure("commands_of_"+strings.TrimSuffix(filepath.Base(reading.Page), ".md"), float64(n))
}

// judge fails unless a command has printed what its note demands.
func (n Note) judge(printed string) error {
	is, err := regexp.MatchString(n.Prints, printed)
	if err == nil && !is {
		err = fmt.Errorf("it prints nothing like %s:\n%s", n.Prints, printed)
	}
	return err
}

// perform runs a command as its note says.
func (r *Reader) perform(where, command string, note Note) (printed string) {
	within := cmp.Or(note.Within, time.Minute)
	once := func() error {
		ctx, cancel := context.WithTimeout(r.Ctx, within)
		defer cancel()
		out, err := r.typed(ctx, command, note)
		if err == nil {
			err = note.judge(out)
		}
		printed = out
		return err
	}
	if note.Soon {
		r.Eventually(within, where, once)
		return printed
	}
	if err := once(); err != nil {
		r.Fail("%s: %s: %w: %s", where, command, err, printed)
	}
	return printed
}

// Run runs a command of the scenario's own, and returns what it prints.
func (r *Reader) Run(command string) string { return r.perform("the scenario", command, Note{}) }

// RunSoon runs a command of the scenario's own until it succeeds.
func (r *Reader) RunSoon(command string, within time.Duration) {
	r.perform(command, command, Note{Soon: true, Within: within})
}

// written is what a program has printed so far.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// enough is called once what was printed is what is waited for.
	is     func(string) bool
	enough func()
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if w.is != nil && w.is(w.buf.String()) {
		w.is = nil
		w.enough()
	}
	return len(p), nil
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// errEnough ends a command that does not end by itself, once it has printed enough.
var errEnough = errors.New("it has printed what it is to print")

// typed runs a command, to its end or until it has printed what it is to print.
func (r *Reader) typed(ctx context.Context, command string, note Note) (string, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	shell := []string{"bash", "-euo", "pipefail", "-c", command}
	enter := r.Enter
	if note.On != "" {
		enter = func(ctx context.Context, argv ...string) (*exec.Cmd, error) {
			return r.Lab.Inside(ctx, note.On, argv...)
		}
	}
	cmd, err := enter(ctx, shell...)
	if err != nil {
		return "", err
	}
	out := &written{}
	if note.GoesOn {
		out.is = func(printed string) bool { return printed != "" && note.judge(printed) == nil }
		out.enough = func() { stop(errEnough) }
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Stdin = r.Dir, out, out, strings.NewReader(note.Types)
	cmd.Env = append(cmd.Env, "PATH="+strings.Join([]string{
		r.Tools, os.Getenv("PATH"), "/usr/local/sbin", "/usr/sbin", "/sbin",
	}, string(filepath.ListSeparator)))
	for name, value := range r.Environ {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	end := func(by syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, by) }
	cmd.Cancel = func() error {
		if note.Interrupted > 0 {
			return end(syscall.SIGINT)
		}
		return end(syscall.SIGKILL)
	}
	cmd.WaitDelay = cmp.Or(note.Interrupted, 5*time.Second) // whoever has its output may outlive it
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && note.Interrupted > 0 {
		return out.String(), fmt.Errorf("Ctrl-C does not end it: %w", errors.Join(err, end(syscall.SIGKILL)))
	}
	switch {
	case errors.Is(context.Cause(ctx), errEnough):
		err = nil
	case note.GoesOn:
		err = fmt.Errorf("it ended: %w", errors.Join(err, context.Cause(ctx)))
	case ctx.Err() != nil:
		err = fmt.Errorf("it goes on: %w", errors.Join(err, context.Cause(ctx)))
	}
	return out.String(), err
}
