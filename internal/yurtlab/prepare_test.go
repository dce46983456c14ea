package yurtlab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/lab/build"
)

// TestSaysWhomItWaitsFor: who needs images while another lab builds is told so, not left in silence.
func TestSaysWhomItWaitsFor(t *testing.T) {
	cache := t.TempDir()
	lock, err := os.Create(filepath.Join(cache, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := lock.WriteString("process 17"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(cache, "program")
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	bins := build.Binaries{YurtCoordinator: program, CoordinatorController: program, YurtHub: program}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out strings.Builder
	if _, err := systemImages(ctx, "", cache, bins, false, newProgress(&out).show); err == nil {
		t.Error("they are made while another lab builds")
	}
	if !strings.Contains(out.String(), "another lab is building (process 17): waiting for it") {
		t.Errorf("it says %q", out.String())
	}
}
