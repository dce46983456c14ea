package build

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	// buildTimeout ends a build that hangs, most likely in a download. The slowest build seen, Kubernetes from scratch
	// on two busy cores, took 8 minutes.
	buildTimeout = time.Hour

	// stopGrace is how long the Go tool has to remove its temporary files after an interrupt.
	stopGrace = 10 * time.Second

	// failureLines is how much of a tool's output an error quotes.
	failureLines = 20
)

// goTool runs the go command.
type goTool struct {
	path string
	dir  string // directory of our module
	// apart is the Go build cache of stages that have one of their own.
	apart string
}

// apartDir is a Go build cache, inside our cache directory, for programs that are compiled only once: another Kubernetes takes
// some 2 GB in it. artifact.Store takes a directory of this name for garbage, so the cache that a killed build leaves is soon
// removed.
const apartDir = "tmp-go-build"

// trim removes the Go build cache of stages that have one of their own.
func (g *goTool) trim() {
	if g.apart != "" {
		_ = os.RemoveAll(g.apart) // the next builder removes what is left
	}
}

func newGoTool(moduleRoot string) (*goTool, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, fmt.Errorf("the lab builds Kubernetes from its Go modules: install Go (https://go.dev/dl): %w", err)
	}
	return &goTool{path: path, dir: moduleRoot}, nil
}

// goEnvNames are the settings of the Go tool that change its output.
var goEnvNames = []string{"GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GOAMD64", "GOARM64", "GOARM",
	"CC", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_LDFLAGS", "PKG_CONFIG", "GOFIPS140"}

// env returns the Go tool's settings that a key depends on.
func (g *goTool) env(ctx context.Context) (map[string]string, error) {
	out, err := g.run(ctx, g.dir, stage{}, nil, append([]string{"env", "-json"}, goEnvNames...)...)
	if err != nil {
		return nil, err
	}
	var env map[string]string
	if err := json.Unmarshal(out, &env); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	return env, nil
}

// module returns the path of the module in a directory, and the versions of the modules that it requires.
func (g *goTool) module(ctx context.Context, dir string) (path string, required map[string]string, err error) {
	out, err := g.run(ctx, dir, stage{}, nil, "mod", "edit", "-json")
	if err != nil {
		return "", nil, err
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", nil, fmt.Errorf("go mod edit: %w", err)
	}
	required = map[string]string{}
	for _, r := range mod.Require {
		required[r.Path] = r.Version
	}
	return mod.Module.Path, required, nil
}

// download fetches a stage's module, checks it against its pinned hash and returns its directory. Our own module needs
// no download.
func (g *goTool) download(ctx context.Context, s stage, line func(string)) (dir string, err error) {
	if s.Module == "" {
		return filepath.Join(g.dir, filepath.FromSlash(s.Dir)), nil
	}
	// It does not run in our module's directory, so that the download does not change our go.sum.
	out, err := g.run(ctx, string(filepath.Separator), s, line, "mod", "download", "-json", s.Module+"@"+s.Version)
	if err != nil {
		return "", err
	}
	var mod struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("go mod download: %w", err)
	}
	if mod.Sum != s.Sum {
		return "", fmt.Errorf("%s %s: content %s differs from the pinned %s: do not use it", s.Module, s.Version,
			mod.Sum, s.Sum)
	}
	return mod.Dir, nil
}

// OpenYurt returns the directory of OpenYurt's module, with the manifests of the version that is built. moduleRoot is the
// directory of the product's go.mod.
func OpenYurt(ctx context.Context, moduleRoot string) (dir string, err error) {
	tool, err := newGoTool(moduleRoot)
	if err != nil {
		return "", err
	}
	if dir, err = tool.download(ctx, openYurt().stages[0], nil); err != nil {
		return "", fmt.Errorf("OpenYurt %s: %w", openYurtVersion, err)
	}
	return dir, nil
}

// stale lists the packages that a stage must compile or link.
func (g *goTool) stale(ctx context.Context, s stage, dir string, line func(string)) ([]string, error) {
	dir, remove, err := s.source(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	out, err := g.run(ctx, dir, s, line, s.listArgs()...)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}

// build runs a stage with its output below work. It also passes each line that the tool prints to line.
func (g *goTool) build(ctx context.Context, s stage, dir, work string, line func(string)) error {
	dir, remove, err := s.source(ctx, dir)
	if err != nil {
		return err
	}
	defer remove()
	_, err = g.run(ctx, dir, s, line, s.args(work)...)
	return err
}

// source returns a directory with the source that the stage builds: the module in dir with the stage's replacements, or the
// files of the stage's commit from the repository in dir.
func (s stage) source(ctx context.Context, dir string) (path string, remove func(), err error) {
	if s.Commit != "" {
		return exported(ctx, dir, s.Commit)
	}
	return s.replaced(dir)
}

// replaced returns a directory with the module in dir and the stage's replacements. Without replacements it returns dir itself.
// Otherwise it returns a copy, because the Go tool allows no overlay over a module that it downloaded.
func (s stage) replaced(dir string) (path string, remove func(), err error) {
	if len(s.Replace) == 0 {
		return dir, func() {}, nil
	}
	path, err = os.MkdirTemp("", "yurtlab-module-")
	if err != nil {
		return "", nil, fmt.Errorf("copy of the module: %w", err)
	}
	remove = func() { _ = os.RemoveAll(path) } // a leftover there does no harm
	err = os.CopyFS(path, os.DirFS(dir))
	for name, content := range s.Replace {
		if err != nil {
			break
		}
		file := filepath.Join(path, filepath.FromSlash(name))
		if err = os.Remove(file); err == nil { // it must exist: another version may have it elsewhere
			err = os.WriteFile(file, []byte(content), 0o600)
		}
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("copy of the module: %w", err)
	}
	return path, remove, nil
}

// run runs the go command and returns its standard output. It calls line, which may be nil, with each line of standard error.
// If the command fails, the error contains the last lines of standard error, and advice if we have any.
func (g *goTool) run(ctx context.Context, dir string, s stage, line func(string), args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, buildTimeout, fmt.Errorf("not done after %s", buildTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, g.path, args...)
	cmd.Dir = dir
	cmd.Env = environment(os.Environ(), s.CGO)
	if s.Apart && g.apart != "" && os.Getenv("GOCACHE") == "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+g.apart)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	var out bytes.Buffer
	cmd.Stdout = &out
	last := tail{max: failureLines}
	lines := &lineWriter{line: func(l string) {
		last.add(l)
		if line != nil {
			line(l)
		}
	}}
	cmd.Stderr = lines
	err := cmd.Run()
	lines.flush()
	if err == nil {
		return out.Bytes(), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	failure := fmt.Errorf("go %s: %w", args[0], err)
	if last.String() != "" {
		failure = fmt.Errorf("%w\n%s", failure, last.String())
	}
	if hint := advice(last.String()); hint != "" {
		failure = fmt.Errorf("%w\nwhat to do: %s", failure, hint)
	}
	return nil, failure
}

// environment returns the caller's environment, adapted to a build for this machine of only the module at hand.
func environment(environ []string, cgo bool) []string {
	fixed := []string{"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH, "GOWORK=off", "GO111MODULE=on",
		"CGO_ENABLED=0"}
	if cgo {
		fixed[len(fixed)-1] = "CGO_ENABLED=1"
	}
	env := slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(fixed, func(f string) bool { return strings.HasPrefix(f, name+"=") })
	})
	return append(env, fixed...)
}

// lineWriter splits what is written to it into lines.
type lineWriter struct {
	line func(string)
	rest []byte
}

// maxLine bounds how much of an unfinished line is kept.
const maxLine = 64 << 10

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		advance, token, err := bufio.ScanLines(w.rest, false)
		if err != nil {
			return 0, err
		}
		if advance == 0 {
			break
		}
		w.line(string(token))
		w.rest = append(w.rest[:0], w.rest[advance:]...)
	}
	if len(w.rest) > maxLine {
		w.flush()
	}
	return len(p), nil
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
	}
	w.rest = w.rest[:0]
}

// errNotRequired says that a module is missing from the lab's go.mod.
var errNotRequired = errors.New("not required by go.mod")
