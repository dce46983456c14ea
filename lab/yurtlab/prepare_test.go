package yurtlab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/lab/build"
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
	for what, wait := range map[string]func(ctx context.Context, show func(build.Event)) error{
		"images of another commit": func(ctx context.Context, show func(build.Event)) error {
			p := prepared{}
			p.bins.Former.YurtCoordinator, p.bins.Former.CoordinatorController = program, program
			return p.addFormerImages(ctx, cache, "c0ffee", build.Waiting(show))
		},
		"our own images": func(ctx context.Context, show func(build.Event)) error {
			_, err := systemImages(ctx, "", cache, bins, false, show)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var out strings.Builder
		if err := wait(ctx, newProgress(&out).show); err == nil {
			t.Errorf("%s: they are made while another lab builds", what)
		}
		cancel()
		if !strings.Contains(out.String(), "another lab is building (process 17): waiting for it") {
			t.Errorf("%s: it says %q", what, out.String())
		}
	}
}
