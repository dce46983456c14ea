package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// What was written after the copy must be gone, too: etcd would replay a log that goes on.
func TestReplaceDir(t *testing.T) {
	dir := t.TempDir()
	data, backup := filepath.Join(dir, "data"), filepath.Join(dir, "backup")
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(data, "member", "db"), "first")
	write(filepath.Join(backup, "older"), "x")
	if err := replaceDir(backup, data); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(data, "member", "db"), "second")
	write(filepath.Join(data, "member", "wal"), "later")
	if err := replaceDir(data, backup); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(data, "member", "db")); string(got) != "first" {
		t.Errorf("db is %q, %v: want what was copied", got, err)
	}
	for _, gone := range []string{filepath.Join(data, "member", "wal"), filepath.Join(backup, "older")} {
		if _, err := os.Stat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if info, err := os.Stat(data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s is %v, %v: want it for its owner alone", data, info.Mode(), err)
	}
}
