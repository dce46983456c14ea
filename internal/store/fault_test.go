package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// feed is the least that a feeder does: it tells what follows, and after an error begins anew if it must.
func feed(t *testing.T, s *Store, r edge.Revision) {
	t.Helper()
	k := s.Sink(slicesID)
	if k.Position() != 0 && k.Apply(context.Background(), []stream.Event{eventAt(r)}) == nil {
		return
	}
	if k.Position() == 0 {
		_ = k.Replace(context.Background(), stateAt(r)) // refused while the disk cannot be written
	}
}

// loadEvenOlder takes what Load gives, or what the disk has if that is older than something that was lost.
func loadEvenOlder(t *testing.T, s *Store, id Collection) (stream.Snapshot, error) {
	t.Helper()
	got, err := s.Load(id)
	if err == nil || !strings.Contains(err.Error(), "an older state") {
		return got, err
	}
	disk := copied(t, s)
	defer func() { _ = disk.Close() }()
	return disk.Load(id)
}

// The disk fails at the n-th point, for every n, in each of the ways that a disk fails; it stays so for a while, and then
// does well again. What can be loaded is always a state that was, and in the end the latest one.
func TestFailureAtEveryPoint(t *testing.T) {
	t.Parallel()
	for errno, lengths := range map[error][]int{unix.ENOSPC: {1, 3, 10}, unix.EIO: {2}, unix.EROFS: {8}} {
		reached := true
		for n := 0; reached; n += slow {
			for _, length := range lengths {
				synctest.Test(t, func(t *testing.T) { reached = failAt(t, errno, n, length) })
			}
		}
	}
}

func failAt(t *testing.T, errno error, n, length int) (reached bool) {
	t.Helper()
	var points, hit atomic.Int64
	var well atomic.Bool
	dir := t.TempDir()
	what := fmt.Sprintf("%v at %d for %d", errno, n, length)
	fault := func(string) error {
		if at := points.Add(1); !well.Load() && at > int64(n) && at <= int64(n+length) {
			hit.Add(1)
			return errno
		}
		return nil
	}
	s, err := open(Config{Dir: dir}, fault)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var r, seen edge.Revision
	for range 8 {
		r++
		feed(t, s, r)
		_ = s.PutBlob("revision", []byte(r.String()))
		time.Sleep(1500 * time.Millisecond)
		got, err := loadEvenOlder(t, s, slicesID)
		if err == nil && (got.Revision < seen || !same(got, stateAt(got.Revision))) {
			t.Fatalf("%s: %d objects at %s, after %s", what, len(got.Objects), got.Revision, seen)
		}
		if err != nil && (!errors.Is(err, ErrMiss) || s.Health().Err == "" && seen > 0) {
			t.Fatalf("%s: after %s: %v, %+v", what, seen, err, s.Health())
		}
		seen = max(seen, got.Revision)
	}
	well.Store(true)
	for range 4 {
		time.Sleep(time.Minute)
		r++
		feed(t, s, r)
	}
	time.Sleep(2 * time.Second)
	blob, err := s.Blob("revision")
	if h := s.Health(); h.Err != "" || err != nil || string(blob) != "8" {
		t.Fatalf("%s: in the end %+v, %q, %v", what, h, blob, err)
	}
	holds(t, s, slicesID, stateAt(r))
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	_ = s.Close()
	s = opening(t, Config{Dir: dir}, nil)
	defer func() { _ = s.Close() }()
	holds(t, s, slicesID, stateAt(r))
	return hit.Load() > 0
}

// While a disk stays full, its file is not verified each minute; when there is room again, all is written.
func TestAFullDiskIsNotReadAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		var reads atomic.Int64
		dir := t.TempDir()
		s := opening(t, Config{Dir: dir}, func(point string) error {
			if point == "open" {
				reads.Add(1)
			} else if full.Load() {
				return unix.ENOSPC
			}
			return nil
		})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		defer func() {
			cancel()
			must(t, <-ended)
		}()
		replace(t, s, slicesID, stateAt(5))
		time.Sleep(2 * time.Second)
		full.Store(true)
		replace(t, s, slicesID, stateAt(6))
		reads.Store(0)
		time.Sleep(time.Hour)
		if n := reads.Load(); n != 0 {
			t.Errorf("the file was read %d times in an hour", n)
		}
		if h := s.Health(); !strings.Contains(h.Err, "no space left") || time.Since(h.Since) < 59*time.Minute {
			t.Errorf("%+v", h)
		}
		if got, err := loadEvenOlder(t, s, slicesID); err != nil || !same(got, stateAt(5)) {
			t.Error(got.Revision, err)
		}
		full.Store(false)
		time.Sleep(2 * time.Minute)
		replace(t, s, slicesID, stateAt(7))
		time.Sleep(2 * time.Second)
		holds(t, s, slicesID, stateAt(7))
		if n := reads.Load(); n != 1 {
			t.Errorf("the file was read %d times", n)
		}
		if _, err := os.Stat(filepath.Join(dir, newName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was tried is still there: %v", err)
		}
	})
}

// With a disk that cannot be written a store opens, and gives what is on it.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	replace(t, s, slicesID, stateAt(9))
	flush(t, s)
	_ = s.Close()
	inNamespace(t, "TestUnwritable", func() {
		must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
		must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	})
	if os.Getenv(namespaceEnv) == "" {
		return
	}
	s = opening(t, Config{Dir: dir}, nil)
	if h := s.Health(); !strings.Contains(h.Err, "read-only") || h.Since.IsZero() || h.Corrupt != "" {
		t.Fatalf("%+v", h)
	}
	holds(t, s, slicesID, stateAt(9))
	if p := s.Sink(slicesID).Position(); p != 9 {
		t.Fatalf("position %s", p)
	}
	if err := s.Sink(slicesID).Apply(context.Background(), []stream.Event{eventAt(10)}); !errors.Is(err, ErrUnwritable) {
		t.Fatal(err)
	}
	if err := s.recover(context.Background()); err == nil {
		t.Fatal("a read-only disk has recovered")
	}
	if got, err := loadEvenOlder(t, s, slicesID); err != nil || !same(got, stateAt(9)) {
		t.Fatal(got.Revision, err)
	}
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	must(t, s.recover(context.Background()))
	if p := s.Sink(slicesID).Position(); p != 0 || s.Health().Err != "" {
		t.Fatalf("position %s, %+v", p, s.Health())
	}
	replace(t, s, slicesID, stateAt(12))
	flush(t, s)
	holds(t, s, slicesID, stateAt(12))
	_ = s.Close()
	must(t, unix.Unmount(dir, 0))
}

// A disk with room for n pages, for many n: each write of a transaction is one that finds no space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	inNamespace(t, "TestFullDisk", func() {})
	if os.Getenv(namespaceEnv) == "" {
		return
	}
	failed := 0
	for pages := 2; pages < 100; pages += 2 * slow {
		dir := t.TempDir()
		must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", pages*4096)))
		s := opening(t, Config{Dir: dir}, nil)
		var r, kept edge.Revision
		for r < 110 {
			r++
			feed(t, s, r)
			if err := s.Flush(context.Background()); err == nil && s.Sink(slicesID).Position() == r {
				kept = r
			}
			got, err := loadEvenOlder(t, s, slicesID)
			if kept > 0 && (err != nil || got.Revision < kept || !same(got, stateAt(got.Revision))) {
				t.Fatalf("%d pages, at %s of %s: %v, %v", pages, kept, r, got.Revision, err)
			}
		}
		if s.Health().Err == "" {
			must(t, unix.Unmount(dir, unix.MNT_DETACH))
			continue
		}
		failed++
		must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=10m"))
		must(t, s.recover(context.Background()))
		replace(t, s, slicesID, stateAt(r))
		flush(t, s)
		holds(t, s, slicesID, stateAt(r))
		if h := s.Health(); h.Err != "" || h.Corrupt != "" {
			t.Fatalf("%d pages: %+v", pages, h)
		}
		_ = s.Close()
		must(t, unix.Unmount(dir, 0))
	}
	if failed < 10/slow {
		t.Fatalf("the disk was full %d times only", failed)
	}
}

const namespaceEnv = "STORE_TEST_NAMESPACE"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inNamespace runs the test again, in a mount namespace of its own where it is root; there, setup. It needs no privilege,
// but a kernel that lets users have namespaces.
func inNamespace(t *testing.T, name string, setup func()) {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		setup()
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.count=1")
	child.Env = append(os.Environ(), namespaceEnv+"=1", "TMPDIR="+filepath.Clean(t.TempDir()))
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := child.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		t.Skip("no namespaces for users here:", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
