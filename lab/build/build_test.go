package build

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/lab/build/artifact"
)

// module writes a module of two programs, one of which uses a package of it.
func module(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range map[string]string{
		"go.mod":         "module example.org/ours\n\ngo 1.26.0\n",
		"lab/go.mod":     "module example.org/ours/lab\n\ngo 1.26.0\n",
		"greet/greet.go": "package greet\n\nvar Text = \"hello\"\n",
		"cmd/hub/main.go": "package main\n\nimport \"example.org/ours/greet\"\n\n" +
			"func main() { println(greet.Text) }\n",
		"cmd/idle/main.go": "package main\n\nfunc main() {}\n",
	} {
		write(t, filepath.Join(root, path), content)
	}
	return root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ensure does what Ensure does, with a plan for the module of this test.
func ensure(ctx context.Context, t *testing.T, root, cache string) (*artifact.Entry, []Event, error) {
	t.Helper()
	var events []Event
	b := &builder{store: &artifact.Store{Dir: cache}, progress: func(e Event) { events = append(events, e) }}
	var err error
	if b.tool, err = newGoTool(root); err != nil {
		t.Fatal(err)
	}
	tree, err := fingerprint(root)
	if err != nil {
		t.Fatal(err)
	}
	s := set{name: "programs", source: tree, stages: []stage{{Name: StagePrograms, Title: "programs", Output: "bin/",
		Packages: prefix("example.org/ours/cmd/", "hub", "idle"), LDFlags: strip()}}}
	env, err := b.tool.env(ctx)
	if err != nil {
		return nil, events, err
	}
	key, err := s.key(env)
	if err != nil {
		t.Fatal(err)
	}
	b.sets, b.keys = []set{s}, map[string]string{s.name: key}
	if err := b.announce(ctx); err != nil {
		return nil, events, err
	}
	e, err := b.store.Get(ctx, b.spec(s))
	if err == nil {
		t.Cleanup(func() { e.Close() })
	}
	return e, events, err
}

func output(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestBuildsOnceAndAgainWhenTheSourceChanges(t *testing.T) {
	root, cache := module(t), t.TempDir()
	first, events, err := ensure(t.Context(), t, root, cache)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, first.Path("bin/hub")); got != "hello\n" {
		t.Errorf("it says %q", got)
	}
	announced := func(e Event) bool { return e.Stage == StagePlan && strings.Contains(e.Text, "2 programs") }
	if !slices.ContainsFunc(events, announced) {
		t.Errorf("the amount of work was not announced: %v", events)
	}
	last := events[len(events)-1]
	if last.Total < 2 || last.Done != last.Total {
		t.Errorf("the last event is %+v, want all of at least two packages done", last)
	}

	again, events, err := ensure(t.Context(), t, root, cache)
	if err != nil {
		t.Fatal(err)
	}
	if again.Dir != first.Dir || len(events) > 0 {
		t.Errorf("nothing changed, and it built again: %v", events)
	}

	write(t, filepath.Join(root, "greet", "greet.go"), "package greet\n\nvar Text = \"goodbye\"\n")
	changed, _, err := ensure(t.Context(), t, root, cache)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, changed.Path("bin/hub")); got != "goodbye\n" {
		t.Errorf("after a change it says %q", got)
	}
	if got := output(t, first.Path("bin/hub")); got != "hello\n" {
		t.Errorf("the binary that a running lab has changed: it says %q", got)
	}
	same := func(program string) bool {
		a, errA := os.Stat(first.Path(program))
		b, errB := os.Stat(changed.Path(program))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		return os.SameFile(a, b)
	}
	if !same("bin/idle") || same("bin/hub") {
		t.Errorf("idle taken over: %v, want true; hub taken over: %v, want false", same("bin/idle"), same("bin/hub"))
	}
}

func TestFailureShowsTheCompilersWords(t *testing.T) {
	root, cache := module(t), t.TempDir()
	write(t, filepath.Join(root, "cmd", "hub", "main.go"), "package main\n\nfunc main() { undefinedThing() }\n")
	_, _, err := ensure(t.Context(), t, root, cache)
	if err == nil || !strings.Contains(err.Error(), "undefinedThing") {
		t.Errorf("error %v, want what the compiler said", err)
	}
	if err := os.RemoveAll(filepath.Join(root, "cmd", "idle")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ensure(t.Context(), t, root, cache); err == nil || !strings.Contains(err.Error(), "cmd/idle") {
		t.Errorf("error %v, want one that names the missing package", err)
	}
}

func TestCancelledBuild(t *testing.T) {
	reason := errors.New("the user gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, _, err := ensure(ctx, t, module(t), t.TempDir()); !errors.Is(err, reason) {
		t.Errorf("error %v, want %v", err, reason)
	}
}

func TestEnsureOutsideOfOurModule(t *testing.T) {
	_, err := Ensure(t.Context(), Config{ModuleRoot: t.TempDir(), CacheDir: t.TempDir()})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Ensure without a go.mod: %v", err)
	}
	_, err = Ensure(t.Context(), Config{ModuleRoot: module(t), CacheDir: t.TempDir()})
	if !errors.Is(err, errNotRequired) {
		t.Errorf("Ensure without Kubernetes in go.mod: %v", err)
	}
	_, err = Ensure(t.Context(), Config{ModuleRoot: module(t), CacheDir: t.TempDir(), Only: "kubernets"})
	if err == nil || !strings.Contains(err.Error(), "kubernetes, containers") {
		t.Errorf("Ensure of a set that there is not: %v", err)
	}
}

func TestPinnedContentIsChecked(t *testing.T) {
	// A go command that has the module, but with content of its choice.
	g := &goTool{dir: t.TempDir()}
	fake := filepath.Join(t.TempDir(), "go")
	write(t, fake, "#!/bin/sh\necho '{\"Dir\": \"/somewhere\", \"Sum\": \"h1:other\"}'\n")
	if err := os.Chmod(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	g.path = fake
	s := stage{origin: origin{"example.org/y", "v1.0.0", "h1:pinned"}}
	if _, err := g.download(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "h1:pinned") {
		t.Errorf("other content than pinned: %v", err)
	}
	s.Sum = "h1:other"
	if dir, err := g.download(t.Context(), s, nil); err != nil || dir != "/somewhere" {
		t.Errorf("pinned content: %q, %v", dir, err)
	}
}

func TestHold(t *testing.T) {
	e, _, err := ensure(t.Context(), t, module(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var b Binaries
	b.fill(e, []string{"bin/kubelet", "cni/bridge"})
	if b.Kubelet != e.Path("bin/kubelet") || b.CNIDir != e.Path("cni") || b.YurtHub != "" {
		t.Errorf("paths %+v", b)
	}
	release, err := b.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	b.Dirs = append(b.Dirs, filepath.Join(t.TempDir(), "gone"))
	if _, err := b.Hold(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Hold of what is gone: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	env := environment([]string{"HOME=/root", "CGO_ENABLED=1", "GOOS=plan9", "GOWORK=/x/go.work", "GOOSE=1"}, false)
	for _, want := range []string{"HOME=/root", "GOOSE=1", "CGO_ENABLED=0", "GOWORK=off"} {
		if !slices.Contains(env, want) {
			t.Errorf("environment %v lacks %s", env, want)
		}
	}
	for _, not := range []string{"CGO_ENABLED=1", "GOOS=plan9", "GOWORK=/x/go.work"} {
		if slices.Contains(env, not) {
			t.Errorf("environment %v has %s", env, not)
		}
	}
	if !slices.Contains(environment(nil, true), "CGO_ENABLED=1") {
		t.Error("no cgo where it was asked for")
	}
}

func TestLineWriter(t *testing.T) {
	var lines []string
	w := &lineWriter{line: func(l string) { lines = append(lines, l) }}
	for _, part := range []string{"on", "e\ntw", "o\r\n\nthree", strings.Repeat("x", maxLine)} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	w.flush()
	if want := []string{"one", "two", "", "three" + strings.Repeat("x", maxLine)}; !slices.Equal(lines, want) {
		t.Errorf("%d lines, want %d", len(lines), len(want))
	}
}

// A nested module is built where it is, with its own go.mod.
func TestNestedModule(t *testing.T) {
	root := module(t)
	write(t, filepath.Join(root, "nested/go.mod"), "module example.org/other\n\ngo 1.26.0\n")
	write(t, filepath.Join(root, "nested/main.go"), "package main\n\nfunc main() { println(\"nested\") }\n")
	tool, err := newGoTool(root)
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	for dir, want := range map[string]string{"nested": "nested\n", "cmd/hub": "hello\n"} {
		s := stage{Dir: dir, Packages: []string{"."}, Output: "bin/program"}
		at, err := tool.download(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tool.build(t.Context(), s, at, work, nil); err != nil {
			t.Fatal(err)
		}
		if got := output(t, filepath.Join(work, "bin/program")); got != want {
			t.Errorf("what is built in %s says %q, want %q", dir, got, want)
		}
	}
}

func TestReplaced(t *testing.T) {
	root := module(t)
	before := root + "/greet/greet.go"
	if err := os.Chmod(before, 0o444); err != nil { // as the module cache has its files
		t.Fatal(err)
	}
	same, remove, err := stage{}.replaced(root)
	if err != nil || same != root {
		t.Errorf("%s, %v: a stage that replaces nothing needs no copy", same, err)
	}
	remove()
	if _, err := os.Stat(before); err != nil {
		t.Fatalf("the module itself is gone: %v", err)
	}
	s := stage{Replace: map[string]string{"greet/greet.go": "package greet\n\nvar Text = \"replaced\"\n"}}
	dir, remove, err := s.replaced(root)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := newGoTool(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tool.run(t.Context(), dir, s, nil, "build", "-o", root+"/hub", "./cmd/hub"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), root+"/hub").CombinedOutput(); string(out) != "replaced\n" {
		t.Errorf("it says %q, %v", out, err)
	}
	remove()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy is left: %v", err)
	}
	if content, err := os.ReadFile(before); err != nil || !strings.Contains(string(content), "hello") {
		t.Errorf("the module itself has changed: %q, %v", content, err)
	}
	s.Replace["greet/gone.go"] = "package greet"
	if dir, _, err := s.replaced(root); err == nil {
		t.Errorf("%s: a file that the module does not have is replaced", dir)
	}
}
