package etcd

import (
	"os"
	"strings"
	"testing"

	"yurtcoordinator/internal/pool/pooltest"
)

func TestDataDir(t *testing.T) {
	t.Run("made and removed", func(t *testing.T) {
		path := t.TempDir() + "/new"
		dir, err := OpenDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		pooltest.WriteFile(t, path, "data", []byte("x"))
		if err := dir.Remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("still there: %v", err)
		}
	})
	t.Run("closed to others", func(t *testing.T) {
		path := t.TempDir()
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		dir, err := OpenDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Remove() //nolint:errcheck // the test's own directory
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	t.Run("another's files are not deleted", func(t *testing.T) {
		path := t.TempDir()
		precious := pooltest.WriteFile(t, path, "precious", []byte("x"))
		if _, err := OpenDataDir(path); err == nil || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(precious); err != nil {
			t.Error(err)
		}
	})
	t.Run("in use", func(t *testing.T) {
		path := t.TempDir()
		dir, err := OpenDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Remove() //nolint:errcheck // the test's own directory
		kept := pooltest.WriteFile(t, path, "data", []byte("x"))
		if _, err := OpenDataDir(path); err == nil || !strings.Contains(err.Error(), "another coordinator") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	})
	t.Run("emptied after a kill", func(t *testing.T) {
		path := t.TempDir()
		dir, err := OpenDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		left := pooltest.WriteFile(t, path, "data", []byte("x"))
		dir.marker.Close() // what the kernel does to a killed process
		again, err := OpenDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Remove() //nolint:errcheck // the test's own directory
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("still there: %v", err)
		}
	})
	t.Run("too long a path", func(t *testing.T) {
		if _, err := OpenDataDir(t.TempDir() + "/" + strings.Repeat("x", 100)); err == nil ||
			!strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("got %v", err)
		}
	})
}
