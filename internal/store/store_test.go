package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

var slicesID = Collection{
	Resource: schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
}

func opening(t testing.TB, c Config, fault faults) *Store {
	t.Helper()
	s, err := open(c, fault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func flush(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func object(namespace, name string, revision edge.Revision, content string) stream.Object {
	return streamtest.Object(streamtest.EndpointSlices, namespace, name, revision, content)
}

// filler is text that cannot be packed.
func filler(seed uint64, size int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	random, bits := rand.NewPCG(seed, 3), uint64(0)
	b := make([]byte, size)
	for i := range b {
		if bits < uint64(len(letters)) {
			bits = random.Uint64()
		}
		b[i], bits = letters[bits%uint64(len(letters))], bits/uint64(len(letters))
	}
	return string(b)
}

// snapshotOf is n objects of size bytes each as of a revision.
func snapshotOf(n, size int, revision edge.Revision) stream.Snapshot {
	s := stream.Snapshot{Type: streamtest.EndpointSlices, Revision: revision}
	for i := range n {
		s.Objects = append(s.Objects,
			object(fmt.Sprintf("ns%02d", i%7), fmt.Sprintf("slice-%05d", i), revision, filler(uint64(i), size)))
	}
	slices.SortFunc(s.Objects, func(a, b stream.Object) int { return a.Key.Compare(b.Key) })
	return s
}

func same(a, b stream.Snapshot) bool {
	alike := func(a, b stream.Object) bool {
		return a.Key == b.Key && a.Revision == b.Revision && string(a.Raw) == string(b.Raw)
	}
	return a.Type == b.Type && a.Revision == b.Revision && a.History == b.History && a.Before == b.Before &&
		slices.EqualFunc(a.Objects, b.Objects, alike)
}

func replace(t testing.TB, s *Store, id Collection, snapshot stream.Snapshot) {
	t.Helper()
	if err := s.Sink(id).Replace(context.Background(), snapshot); err != nil {
		t.Fatal(err)
	}
}

func holds(t testing.TB, s *Store, id Collection, want stream.Snapshot) {
	t.Helper()
	got, err := s.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	if !same(got, want) {
		t.Fatalf("%s holds %d objects at %s, want %d at %s, or others",
			id, len(got.Objects), got.Revision, len(want.Objects), want.Revision)
	}
}

// copied opens a copy of a store's directory: what it has is on the disk, and reading it counts for nothing.
func copied(t testing.TB, s *Store) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(s.config.Dir)); err != nil {
		t.Fatal(err)
	}
	return opening(t, Config{Dir: dir}, nil)
}

// onDisk returns up to which moment a collection is on disk; zero if it is not.
func onDisk(t testing.TB, s *Store, id Collection) edge.Moment {
	t.Helper()
	disk := copied(t, s)
	defer func() { _ = disk.Close() }()
	got, err := disk.Load(id)
	if err != nil && !errors.Is(err, ErrMiss) {
		t.Fatal(err)
	}
	return edge.Moment{History: got.History, Revision: got.Revision}
}

// blobOnDisk reports whether the disk has a blob.
func blobOnDisk(t testing.TB, s *Store, key string) bool {
	t.Helper()
	disk := copied(t, s)
	defer func() { _ = disk.Close() }()
	_, err := disk.Blob(key)
	return err == nil
}

func misses(t testing.TB, s *Store, id Collection, reason string) {
	t.Helper()
	if _, err := s.Load(id); !errors.Is(err, ErrMiss) || !strings.Contains(err.Error(), reason) {
		t.Fatalf("load %s: %v, want a miss because of %q", id, err, reason)
	}
}

type harness struct {
	t   *testing.T
	s   *Store
	typ stream.Type
	id  Collection
}

func (h *harness) Sink() stream.Sink { return h.s.Sink(h.id) }
func (h *harness) Type() stream.Type { return h.typ }
func (h *harness) Content() []stream.Object {
	flush(h.t, h.s)
	if h.Sink().Position() == 0 {
		misses(h.t, h.s, h.id, "never stored")
		return nil
	}
	s, err := h.s.Load(h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	if s.Revision != h.Sink().Position() || s.Type != h.typ {
		h.t.Fatalf("on disk: %v at %s, want %v at %s", s.Type, s.Revision, h.typ, h.Sink().Position())
	}
	return s.Objects
}

func TestSinks(t *testing.T) {
	for _, typ := range []stream.Type{streamtest.EndpointSlices, streamtest.Widgets} {
		t.Run(typ.Kind, func(t *testing.T) {
			streamtest.Sinks(t, func(t *testing.T) streamtest.SinkHarness {
				return &harness{t: t, s: opening(t, Config{Dir: t.TempDir()}, nil), typ: typ, id: slicesID}
			})
		})
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir() + "/deep/store"
	s := opening(t, Config{Dir: dir}, nil)
	coredns := slicesID
	coredns.Client, coredns.Namespace = "system:serviceaccount:kube-system:coredns", "ns"
	coredns.Labels, coredns.Fields = "a=b", "x=y"
	small, large := snapshotOf(3, 10, 5), snapshotOf(3000, 1000, 7)
	replace(t, s, slicesID, large)
	replace(t, s, coredns, small)
	misses(t, s, slicesID, "never stored")
	if err := s.PutBlob("token/a", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second Open: %v, want ErrLocked", err)
	}
	for range 2 {
		holds(t, s, slicesID, large)
		holds(t, s, coredns, small)
		if b, err := s.Blob("token/a"); err != nil || string(b) != "secret" {
			t.Fatalf("blob: %q, %v", b, err)
		}
		if p := s.Sink(slicesID).Position(); p != 7 {
			t.Fatalf("position %s, want 7", p)
		}
		if h := s.Health(); h.Err != "" || h.Corrupt != "" || h.Bytes < 3e6 || h.Bytes > 9e6 {
			t.Fatalf("health %+v", h)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = opening(t, Config{Dir: dir}, nil)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, fileName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %v", path, info.Mode(), err, want)
		}
	}
}

// What Close frees is free at once, also while another goroutine starts a process: until that process executes its program, it
// has a copy of each descriptor, as a duplicate is.
func TestCloseFreesTheDirectoryWhileAProcessStarts(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	replace(t, s, slicesID, snapshotOf(3, 10, 5))
	flush(t, s)
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	held := 0
	for _, entry := range open {
		path, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if path != dir && filepath.Dir(path) != dir {
			continue
		}
		held++
		fd, err := strconv.Atoi(entry.Name())
		must(t, err)
		inherited, err := unix.Dup(fd)
		must(t, err)
		defer func() { must(t, unix.Close(inherited)) }()
	}
	if held < 2 {
		t.Fatalf("%d descriptors: want the directory's and the file's", held)
	}
	must(t, s.Close())
	holds(t, opening(t, Config{Dir: dir}, nil), slicesID, snapshotOf(3, 10, 5))
}

// A large collection is replaced piece by piece, and a reader sees the old one until the new one is whole.
func TestReplaceLarge(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("no more")
	left := 1 << 30
	s := opening(t, Config{Dir: dir}, func(point string) error {
		if left--; point == "commit" && left < 0 {
			return broken
		}
		return nil
	})
	old, next := snapshotOf(2000, 1000, 5), snapshotOf(2500, 1200, 9)
	replace(t, s, slicesID, old)
	flush(t, s)
	left = 0
	replace(t, s, slicesID, next)
	if err := s.Flush(context.Background()); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	misses(t, s, slicesID, "an older state")
	_ = s.Close()
	s = opening(t, Config{Dir: dir}, nil)
	holds(t, s, slicesID, old)
	replace(t, s, slicesID, next)
	flush(t, s)
	holds(t, s, slicesID, next)
	_ = s.Close()
	s = opening(t, Config{Dir: dir}, nil)
	holds(t, s, slicesID, next)
	if h := s.Health(); h.Corrupt != "" || h.Bytes > 9e6 {
		t.Fatalf("health %+v", h)
	}
}

func TestDrop(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	want := snapshotOf(5, 10, 5)
	replace(t, s, slicesID, want)
	flush(t, s)
	s.Drop(slicesID)
	misses(t, s, slicesID, "dropped")
	if p := s.Sink(slicesID).Position(); p != 0 {
		t.Fatalf("position %s", p)
	}
	if err := s.Sink(slicesID).Apply(context.Background(), nil); !errors.Is(err, ErrIncomplete) {
		t.Fatalf("changes of a dropped collection: %v", err)
	}
	older := snapshotOf(2, 10, 3) // the cluster went back
	replace(t, s, slicesID, older)
	misses(t, s, slicesID, "dropped")
	flush(t, s)
	holds(t, s, slicesID, older)
	s.Drop(slicesID)
	flush(t, s)
	if at := onDisk(t, s, slicesID); at.Revision != 0 {
		t.Fatalf("it is on the disk at %s", at)
	}
	_ = s.Close()
	misses(t, opening(t, Config{Dir: dir}, nil), slicesID, "never stored")
}

func TestBlobs(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	put := func(key, value string) {
		t.Helper()
		if err := s.PutBlob(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(key, want string) {
		t.Helper()
		if b, err := s.Blob(key); err != nil || string(b) != want {
			t.Fatalf("%s is %q, %v; want %q", key, b, err, want)
		}
	}
	put("a/1", "x")
	put("a/2", "y")
	put("b/1", "")
	is("a/1", "x")
	flush(t, s)
	put("a/2", "z")
	s.DropBlob("a/1")
	for range 2 {
		is("a/2", "z")
		is("b/1", "")
		if _, err := s.Blob("a/1"); !errors.Is(err, ErrMiss) {
			t.Fatal(err)
		}
		if keys := s.Blobs("a/"); !slices.Equal(keys, []string{"a/2"}) {
			t.Fatalf("%q", keys)
		}
		flush(t, s)
		_ = s.Close()
		s = opening(t, Config{Dir: dir}, nil)
	}
	fill := func(name string) {
		t.Helper()
		for i := range 17 {
			if err := s.PutBlob(fmt.Sprint(name, i), make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if keys := s.Blobs(name); len(keys) != 15 || slices.Contains(keys, name+"1") || !slices.Contains(keys, name+"16") {
			t.Fatalf("%q, want the last 15", keys)
		}
		flush(t, s)
	}
	fill("big")
	if err := s.PutBlob("x", make([]byte, 1<<20+1)); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	for _, key := range s.Blobs("") {
		s.DropBlob(key)
	}
	flush(t, s)
	fill("again")
}

func TestRunCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opening(t, Config{Dir: t.TempDir(), maxBytes: 1 << 20}, nil)
		s.Online(true)
		s.Need(nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		other := slicesID
		other.Client = "other"
		replace(t, s, slicesID, snapshotOf(3, 10, 5))
		replace(t, s, other, snapshotOf(3, 10, 5))
		misses(t, s, other, "never stored")
		time.Sleep(1100 * time.Millisecond)
		for range 8 {
			time.Sleep(24 * time.Hour)
			holds(t, s, other, snapshotOf(3, 10, 5))
		}
		misses(t, s, slicesID, "never stored") // collected
		replace(t, s, other, snapshotOf(500, 1000, 6))
		s.Need([]Collection{other})
		time.Sleep(time.Minute)
		large := slicesID
		large.Client = "large"
		if err := s.Sink(large).Replace(t.Context(), snapshotOf(1100, 1000, 5)); !errors.Is(err, ErrFull) {
			t.Fatalf("more than there may be: %v", err)
		}
		time.Sleep(time.Hour)
		replace(t, s, large, snapshotOf(700, 1000, 5))
		time.Sleep(2 * time.Second)
		if h := s.Health(); h.Bytes > 1<<20 {
			t.Fatalf("%d bytes in use", h.Bytes)
		}
		misses(t, s, large, "no space")
		if err := s.Sink(large).Replace(t.Context(), snapshotOf(700, 1000, 5)); !errors.Is(err, ErrFull) {
			t.Fatalf("again at once: %v", err)
		}
		replace(t, s, other, snapshotOf(4, 10, 7))
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		holds(t, s, other, snapshotOf(4, 10, 7)) // the last flush
	})
}

func TestTouchWritesOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var commits atomic.Int64
		s := opening(t, Config{Dir: t.TempDir()}, func(point string) error {
			if point == "committed" {
				commits.Add(1)
			}
			return nil
		})
		s.Online(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		replace(t, s, slicesID, snapshotOf(3, 10, 5))
		time.Sleep(2 * time.Second)
		commits.Store(0)
		for range 600 {
			time.Sleep(time.Minute)
			s.Touch(slicesID)
		}
		synctest.Wait()
		if n := commits.Load(); n < 8 || n > 10 {
			t.Fatalf("%d writes in 10 hours", n)
		}
	})
}

// Sinks block while the queue is full, and go on when it is written.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opening(t, Config{Dir: t.TempDir(), queueBytes: 4 << 10}, nil)
		replace(t, s, slicesID, snapshotOf(30, 200, 5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		change := []stream.Event{{Type: stream.Added, Object: object("a", "b", 6, "")}}
		if err := s.Sink(slicesID).Apply(ctx, change); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a full queue: %v", err)
		}
		applied := make(chan error)
		go func() { applied <- s.Sink(slicesID).Apply(t.Context(), change) }()
		synctest.Wait()
		flush(t, s)
		if err := <-applied; err != nil || s.Sink(slicesID).Position() != 6 {
			t.Fatalf("%v, position %s", err, s.Sink(slicesID).Position())
		}
	})
}

// What a bookmark says is not worth a write of its own.
func TestBookmarksAreLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opening(t, Config{Dir: t.TempDir()}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		replace(t, s, slicesID, snapshotOf(3, 10, 5))
		time.Sleep(2 * time.Second)
		bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 9}}
		if err := s.Sink(slicesID).Apply(t.Context(), []stream.Event{bookmark}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		holds(t, s, slicesID, snapshotOf(3, 10, 5))
		time.Sleep(time.Minute)
		want := snapshotOf(3, 10, 5)
		want.Revision = 9
		holds(t, s, slicesID, want)
	})
}

func TestBadInput(t *testing.T) {
	s := opening(t, Config{Dir: t.TempDir()}, nil)
	twice := snapshotOf(2, 1, 5)
	twice.Objects[1] = twice.Objects[0]
	for name, bad := range map[string]stream.Snapshot{"revision": snapshotOf(1, 1, 0), "twice": twice} {
		if err := s.Sink(slicesID).Replace(context.Background(), bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := s.Sink(Collection{}).Replace(context.Background(), snapshotOf(1, 1, 1)); err == nil {
		t.Error("no resource: no error")
	}
	replace(t, s, slicesID, snapshotOf(2, 1, 5))
	if err := s.Sink(slicesID).Replace(context.Background(), snapshotOf(2, 1, 4)); !errors.Is(err, ErrOlder) {
		t.Errorf("older: %v", err)
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("no directory: no error")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: file}); err == nil {
		t.Error("a file for a directory: no error")
	}
}

// A file with much garbage is made small.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	replace(t, s, slicesID, snapshotOf(8000, 1000, 5))
	flush(t, s)
	before, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	small := snapshotOf(10, 1000, 6)
	replace(t, s, slicesID, small)
	flush(t, s)
	holds(t, s, slicesID, small)
	_ = s.Close()
	s = opening(t, Config{Dir: dir}, nil)
	after, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil || after.Size() > before.Size()/10 || s.Health().Corrupt != "" {
		t.Fatalf("%d bytes, were %d; %v; %+v", after.Size(), before.Size(), err, s.Health())
	}
	holds(t, s, slicesID, small)
}
