package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"yurtcoordinator/internal/stream"
)

// blobKeeper is what a Store and a Memory both are.
type blobKeeper interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
}

// TestBlobsOnDiskAndInMemory: what holds of a disk holds of the memory that stands in for one.
func TestBlobsOnDiskAndInMemory(t *testing.T) {
	bounds := map[string]int{"few/": 1 << 20, "": 15 << 20}
	for name, b := range map[string]blobKeeper{
		"disk": opening(t, Config{Dir: t.TempDir(), BlobBytes: bounds}, nil), "memory": NewMemory(bounds),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := b.Blob("a/1"); !errors.Is(err, ErrMiss) {
				t.Errorf("never put: %v", err)
			}
			value := []byte("one")
			for key, v := range map[string][]byte{"a/1": value, "a/2": []byte("two"), "b/1": {}} {
				if err := b.PutBlob(key, v); err != nil {
					t.Fatal(err)
				}
			}
			value[0] = 'x'
			if got, err := b.Blob("a/1"); err != nil || string(got) != "one" {
				t.Errorf("%q, %v: want what was put", got, err)
			} else {
				got[0] = 'x'
			}
			if err := b.PutBlob("a/1", []byte("one")); err != nil {
				t.Errorf("the same again: %v", err)
			}
			if got, err := b.Blob("a/1"); err != nil || string(got) != "one" {
				t.Errorf("%q, %v: want what was put", got, err)
			}
			if got := b.Blobs("a/"); !slices.Equal(got, []string{"a/1", "a/2"}) {
				t.Errorf("keys: %q", got)
			}
			b.DropBlob("a/1")
			b.DropBlob("never put")
			if _, err := b.Blob("a/1"); !errors.Is(err, ErrMiss) {
				t.Errorf("dropped: %v", err)
			}
			if got := b.Blobs(""); !slices.Equal(got, []string{"a/2", "b/1"}) {
				t.Errorf("keys: %q", got)
			}
			for _, key := range []string{"", string(make([]byte, 1<<10+1))} {
				if err := b.PutBlob(key, nil); !errors.Is(err, ErrFull) {
					t.Errorf("a key of %d bytes: %v", len(key), err)
				}
			}
			if err := b.PutBlob("a/2", make([]byte, 1<<20+1)); !errors.Is(err, ErrFull) {
				t.Errorf("a large value: %v", err)
			}
			for i := range 200 {
				if err := b.PutBlob(fmt.Sprintf("many/%03d", i), make([]byte, 100<<10)); err != nil {
					t.Fatal(err)
				}
			}
			many, all := b.Blobs("many/"), 15<<20
			if n := len(many); n < all/(102<<10) || n > all/(101<<10) || many[0] != fmt.Sprintf("many/%03d", 200-n) {
				t.Errorf("%d values of 100 KiB, of which the first is %s", n, many[0])
			}
			if got := b.Blobs("a/"); !slices.Equal(got, []string{"a/2"}) {
				t.Errorf("another's few have gone for them: %q", got)
			}
			if err := b.PutBlob("a/2", make([]byte, 1<<20)); err != nil {
				t.Errorf("with no space left: %v", err)
			}
			if err := b.PutBlob("few/1", make([]byte, 1<<19)); err != nil {
				t.Errorf("within its share: %v", err)
			}
			if err := b.PutBlob("few/1", make([]byte, 1<<20)); !errors.Is(err, ErrFull) {
				t.Errorf("larger than its share: %v", err)
			}
			if _, err := b.Blob("few/1"); !errors.Is(err, ErrMiss) {
				t.Errorf("what does not fit leaves the former value: %v", err)
			}
		})
	}
}

func TestMemoryKeepsNoCollection(t *testing.T) {
	m := NewMemory(nil)
	s := m.Sink(slicesID)
	if err := s.Replace(t.Context(), stream.Snapshot{Revision: 5}); err != nil || s.Position() != 5 {
		t.Errorf("at %v, %v", s.Position(), err)
	}
	if err := s.Apply(t.Context(), []stream.Event{{Object: stream.Object{Revision: 7}}}); err != nil || s.Position() != 7 {
		t.Errorf("at %v, %v", s.Position(), err)
	}
	if _, err := m.Load(slicesID); !errors.Is(err, ErrMiss) || m.Sink(slicesID).Position() != 7 {
		t.Errorf("%v; another Sink is at %v", err, m.Sink(slicesID).Position())
	}
	m.Drop(slicesID)
	if err := s.Apply(t.Context(), []stream.Event{{}}); !errors.Is(err, ErrIncomplete) || s.Position() != 0 {
		t.Errorf("dropped: %v, at %v", err, s.Position())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(m.Run(ctx), m.Flush(ctx), m.Close()); err != nil || m.Health() != (Health{}) {
		t.Errorf("%v, %+v", err, m.Health())
	}
}

// Collections that are too many in memory are forgotten, and the blobs are not, for they are nowhere else.
func TestMemoryForgetsCollectionsAlone(t *testing.T) {
	m := NewMemory(map[string]int{"": 1 << 20})
	value := make([]byte, 1<<19)
	if err := m.PutBlob("a", value); err != nil {
		t.Fatal(err)
	}
	for i := range maxTold + 1 {
		id := slicesID
		id.Namespace = fmt.Sprint(i)
		if err := m.Sink(id).Replace(t.Context(), stream.Snapshot{Revision: 5}); err != nil {
			t.Fatal(err)
		}
	}
	first, last := slicesID, slicesID
	first.Namespace, last.Namespace = "0", fmt.Sprint(maxTold)
	if a, b := m.Sink(first).Position(), m.Sink(last).Position(); a != 0 || b != 5 {
		t.Errorf("the first collection is at %v, the last at %v", a, b)
	}
	if got, err := m.Blob("a"); err != nil || len(got) != len(value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	m.DropBlob("a")
	if err := m.PutBlob("b", make([]byte, 1<<20-2<<10)); err != nil {
		t.Errorf("with all room free: %v", err)
	}
}
