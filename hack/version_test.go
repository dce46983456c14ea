// Package hack has the scripts of this repository; only they are tested here.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/version"
)

// TestVersion: what the script says of a clone is what Go says by itself, and a tag is a release.
func TestVersion(t *testing.T) {
	script, err := os.ReadFile("version")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../internal/version/version.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"hack/version": string(script), "internal/version/version.go": string(source)})
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v", name, args, err)
		}
		return strings.TrimSpace(string(out))
	}
	is := func(want string) {
		t.Helper()
		if got := run("bash", "hack/version"); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	is(version.Development("", false))
	run("git", "init", "-q")
	run("git", "add", ".")
	run("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "all")
	commit := run("git", "rev-parse", "HEAD")
	is(version.Development(commit, false))
	run("git", "tag", "v0.9.0")
	is("v0.9.0")
	write(t, dir, map[string]string{"hack/version": string(script) + "\n"})
	is(version.Development(commit, true))
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
