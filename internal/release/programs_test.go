package release

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"yurtcoordinator/internal/oci"
)

// programs builds small ones in the place of ours, for two platforms, with the lists of what is in them.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	source, dir := t.TempDir(), t.TempDir()
	const main = "package main\n\nfunc main() {}\n"
	if err := errors.Join(os.WriteFile(filepath.Join(source, "go.mod"), []byte("module yurtcoordinator\n\ngo 1.26\n"), 0o600),
		os.MkdirAll(filepath.Join(source, "cmd", "any"), 0o700),
		os.WriteFile(filepath.Join(source, "cmd", "any", "main.go"), []byte(main), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		program := filepath.Join(source, "any")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-buildid=", "-o", program, "./cmd/any")
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=linux", "GOARCH="+architecture)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		of := filepath.Join(dir, "linux", architecture)
		if err := os.MkdirAll(of, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			sbom, err := oci.SBOM(name, "v0.2.0", content)
			err = errors.Join(err, os.WriteFile(filepath.Join(of, name), content, 0o700),
				os.WriteFile(filepath.Join(of, name+".cdx.json"), sbom, 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
