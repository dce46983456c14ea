package store

import (
	"errors"
	"fmt"
	"testing"
)

// Who has many blobs of one kind cannot take the place of another kind's few, written or not, before or after a restart.
func TestBlobBounds(t *testing.T) {
	const share = 2 << 20
	dir := t.TempDir()
	config := Config{Dir: dir, BlobBytes: map[string]int{"caller/": share, "access/": share, "answer/": 12 << 20, "": share}}
	s := opening(t, config, nil)
	value := make([]byte, 64<<10)
	fill := func(kind string) (n int) {
		for ; ; n++ {
			if err := s.PutBlob(fmt.Sprintf("%s%04d", kind, n), value); errors.Is(err, ErrFull) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := fill("answer/"); n < 180 || n > 192 {
		t.Errorf("%d answers of 64 KiB, want 12 MiB", n)
	}
	if n := fill("other/"); n < 30 || n > 32 {
		t.Errorf("%d of a kind without a bound of its own, want the 2 MiB of all such kinds", n)
	}
	if err := s.PutBlob("unnamed", value); !errors.Is(err, ErrFull) {
		t.Errorf("without a kind: %v", err)
	}
	if n := fill("caller/"); n < 30 || n > 32 {
		t.Errorf("%d callers of 64 KiB, want 2 MiB", n)
	}
	flush(t, s)
	_ = s.Close()
	s = opening(t, config, nil)
	for range 2 {
		if err := s.PutBlob("answer/more", value); !errors.Is(err, ErrFull) {
			t.Errorf("beyond all: %v", err)
		}
		if err := s.PutBlob("caller/0000", value[:100]); err != nil {
			t.Errorf("smaller than it was: %v", err)
		}
		flush(t, s)
	}
	if n := fill("access/"); n < 30 || n > 32 {
		t.Errorf("%d accesses of 64 KiB, want 2 MiB", n)
	}
	for i := range 20 {
		s.DropBlob(fmt.Sprintf("other/%04d", i))
	}
	if err := s.PutBlob("unnamed", value); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// A file that was filled under other bounds leaves each kind its own.
func TestBlobBoundsOfAFullFile(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	value := make([]byte, 1<<20)
	for i := range 16 {
		_ = s.PutBlob(fmt.Sprintf("answer/%d", i), value)
	}
	flush(t, s)
	_ = s.Close()
	s = opening(t, Config{Dir: dir, BlobBytes: map[string]int{"caller/": 1 << 20, "": 8 << 20}}, nil)
	if err := s.PutBlob("caller/a", value[:1000]); err != nil {
		t.Error(err)
	}
	if err := s.PutBlob("answer/99", value); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}
