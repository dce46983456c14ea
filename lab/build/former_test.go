package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// git runs git in dir as somebody without settings, and returns what it prints.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-C", dir, "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgSign=false",
	}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository is a module that says hello in its first commit, whose name it returns, and something else since then.
func repository(t *testing.T) (root, first string) {
	t.Helper()
	root = module(t)
	git(t, root, "init", "--quiet")
	git(t, root, "add", ".")
	git(t, root, "commit", "--quiet", "--message=first")
	first = git(t, root, "rev-parse", "HEAD")
	write(t, filepath.Join(root, "greet/greet.go"), "package greet\n\nvar Text = \"good day\"\n")
	git(t, root, "commit", "--quiet", "--all", "--message=second")
	return root, first
}

// TestCommit: what is built is the commit, whatever the tree is by now, and nothing of it is left.
func TestCommit(t *testing.T) {
	temp := t.TempDir()
	root, first := repository(t)
	t.Setenv("TMPDIR", temp)
	tool, err := newGoTool(root)
	if err != nil {
		t.Fatal(err)
	}
	s := stage{Commit: first, Packages: []string{"example.org/ours/cmd/hub"}, Output: "former/"}
	dir, err := tool.download(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if stale, err := tool.stale(t.Context(), s, dir, nil); err != nil || len(stale) == 0 {
		t.Errorf("%v, %v: there is something to compile", stale, err)
	}
	work := t.TempDir()
	if err := tool.build(t.Context(), s, dir, work, nil); err != nil {
		t.Fatal(err)
	}
	if got := output(t, filepath.Join(work, "former/hub")); got != "hello\n" {
		t.Errorf("it says %q, want what the first commit says", got)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "yurtlab-commit-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestNoHistory: whoever has a shallow clone, or no clone, is told so, and what to do.
func TestNoHistory(t *testing.T) {
	root, first := repository(t)
	shallow := t.TempDir()
	git(t, shallow, "clone", "--quiet", "--depth=1", "file://"+root, ".")
	none := module(t)
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(none))
	for name, dir := range map[string]string{"a shallow clone": shallow, "no clone": none} {
		_, _, err := exported(t.Context(), dir, first)
		if !errors.Is(err, errNoHistory) || !strings.Contains(err.Error(), "git fetch --unshallow") ||
			!strings.Contains(err.Error(), first) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, _, err := exported(t.Context(), root, first); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("without git: %v", err)
	}
}

// TestUnpackStaysBelow: no archive of anybody's writes elsewhere.
func TestUnpackStaysBelow(t *testing.T) {
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	if err := out.WriteHeader(&tar.Header{Name: "../outside", Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "inside")
	if err := unpack(dir, &archive); err == nil {
		t.Error("it is unpacked")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "outside")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file outside: %v", err)
	}
}

// TestFormerIsPinned: whatever changes in our tree, it is not built again; another commit is.
func TestFormerIsPinned(t *testing.T) {
	key := keyOf(t, SetFormer)
	base := key(func(in *inputs) { in.former = "c0ffee" })
	for what, change := range map[string]func(*inputs){
		"our source": func(in *inputs) { in.tree = "5678" }, "the lab's go.mod": func(in *inputs) { in.goMod += "\n" },
	} {
		if key(func(in *inputs) { in.former = "c0ffee"; change(in) }) != base {
			t.Errorf("%s: it would be built again", what)
		}
	}
	if key(func(in *inputs) { in.former = "decade" }) == base {
		t.Error("another commit would not be built")
	}
}
