package flagfile

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		write := func(content string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("limit: 1\n")
		fs := flags(&settings{})
		if err := Parse(fs, []string{"--config", path}, nil, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		changes, done := 0, make(chan error)
		go func() { done <- Follow(ctx, fs, func() error { changes++; return nil }) }()
		expect := func(want int, what string) {
			t.Helper()
			time.Sleep(2 * followInterval)
			synctest.Wait()
			if changes != want {
				t.Errorf("%s: %d changes told, want %d", what, changes, want)
			}
		}
		expect(0, "untouched")
		write("limit: 2\n")
		expect(1, "changed")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		expect(1, "removed")
		write("limit: 2\n")
		expect(1, "back as it was")
		write("limit: 3\n")
		expect(2, "changed again")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestFollowMissesNoStart: a change while the program starts, after Parse has read the file, is a change.
func TestFollowMissesNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		fs, changes := flags(&settings{}), 0
		if err := os.WriteFile(path, []byte("limit: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Parse(fs, []string{"--config", path}, nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("limit: 2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*followInterval)
		defer cancel()
		if err := Follow(ctx, fs, func() error { changes++; return nil }); err != nil || changes != 1 {
			t.Errorf("%v, and %d changes told, want 1", err, changes)
		}
	})
}

func TestFollowWithoutAFile(t *testing.T) {
	fs := flags(&settings{})
	if err := Parse(fs, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Follow(ctx, fs, func() error { t.Error("a change of no file"); return nil }); err != nil {
		t.Error(err)
	}
}
