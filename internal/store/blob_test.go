package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Who has many blobs of one kind cannot take the place of another kind's few, written or not, before or after a restart.
func TestBlobBounds(t *testing.T) {
	const share = 2 << 20
	dir := t.TempDir()
	config := Config{Dir: dir, BlobBytes: map[string]int{"caller/": share, "access/": share, "answer/": 12 << 20, "": share}}
	s := opening(t, config, nil)
	value := make([]byte, 64<<10)
	fill := func(kind string) {
		t.Helper()
		for i := range 200 {
			if err := s.PutBlob(fmt.Sprintf("%s%04d", kind, i), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(when string, kinds ...string) {
		t.Helper()
		for _, kind := range kinds {
			few, many := 30, 32
			if kind == "answer/" {
				few, many = 180, 192
			}
			if n := len(s.Blobs(kind)); n < few || n > many {
				t.Errorf("%s: %d of %s, want %d to %d", when, n, kind, few, many)
			}
		}
	}
	fill("answer/")
	fill("other/")
	if err := s.PutBlob("unnamed", value); err != nil {
		t.Errorf("without a kind: %v", err)
	}
	fill("caller/")
	check("filled", "answer/", "other/", "caller/")
	flush(t, s)
	check("written", "answer/", "other/", "caller/")
	_ = s.Close()
	s = opening(t, config, nil)
	check("after a restart", "answer/", "other/", "caller/")
	for range 2 {
		if err := errors.Join(s.PutBlob("answer/more", value), s.PutBlob("caller/0199", value[:100])); err != nil {
			t.Errorf("when it is full: %v", err)
		}
		check("after more", "answer/", "other/", "caller/")
		flush(t, s)
	}
	fill("access/")
	check("with another kind", "answer/", "other/", "caller/", "access/")
	if _, err := s.Blob("unnamed"); err != nil {
		t.Errorf("another's few have gone: %v", err)
	}
}

// Of whoever has most, what was put least recently goes.
func TestWhichBlobsGo(t *testing.T) {
	value := make([]byte, 63<<10)
	dir, bounds := t.TempDir(), map[string]int{"guest/": 10 * (64<<10 + 16)}
	s := opening(t, Config{Dir: dir, BlobBytes: bounds}, nil)
	put := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := s.PutBlob("guest/"+name, value); err != nil {
				t.Error(err)
			}
			flush(t, s)
		}
	}
	want := func(names ...string) {
		t.Helper()
		for i := range names {
			names[i] = "guest/" + names[i]
		}
		if got := s.Blobs("guest/"); !slices.Equal(got, names) {
			t.Errorf("%q are there, want %q", got, names)
		}
	}
	put("a/0", "a/1", "a/2", "a/3", "a/4", "a/5", "b/0", "b/1", "b/2", "b/3")
	put("a/0", "c/0") // the first is put again
	want("a/0", "a/2", "a/3", "a/4", "a/5", "b/0", "b/1", "b/2", "b/3", "c/0")
	put("b/4")
	want("a/0", "a/3", "a/4", "a/5", "b/0", "b/1", "b/2", "b/3", "b/4", "c/0")
	put("c/1")
	want("a/0", "a/3", "a/4", "a/5", "b/1", "b/2", "b/3", "b/4", "c/0", "c/1")
	s.DropBlob("guest/b/1")
	put("c/2")
	_ = s.Close()
	s = opening(t, Config{Dir: dir, BlobBytes: bounds}, nil)
	put("d/0") // the places in the file count, where a/0 is first
	want("a/3", "a/4", "a/5", "b/2", "b/3", "b/4", "c/0", "c/1", "c/2", "d/0")
}

// A value that the disk has is not written again.
func TestTheSameBlobIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	size := func() int64 {
		t.Helper()
		flush(t, s)
		info, err := os.Stat(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	put := func(value string) {
		t.Helper()
		if err := s.PutBlob("answer/x", []byte(value)); err != nil {
			t.Error(err)
		}
	}
	put("one")
	once := size()
	if put("one"); size() != once {
		t.Error("the same value is written twice")
	}
	if put("two"); size() == once {
		t.Error("another value is not written")
	}
	s.DropBlob("answer/x")
	dropped := size()
	if put("two"); size() == dropped {
		t.Error("a value that was dropped is not written again")
	}
	if got, err := s.Blob("answer/x"); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
}

// A file that was filled under other bounds leaves each kind its own.
func TestBlobBoundsOfAFullFile(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	value := make([]byte, 1<<20)
	for i := range 15 {
		_ = s.PutBlob(fmt.Sprintf("answer/%d", i), value)
	}
	flush(t, s)
	_ = s.Close()
	s = opening(t, Config{Dir: dir, BlobBytes: map[string]int{"caller/": 1 << 20, "": 8 << 20}}, nil)
	if err := s.PutBlob("caller/a", value[:1000]); err != nil {
		t.Error(err)
	}
	if n := len(s.Blobs("answer/")); n != 15 {
		t.Errorf("%d are left", n)
	}
	if err := s.PutBlob("answer/99", value); err != nil {
		t.Error(err)
	}
	if n := len(s.Blobs("answer/")); n != 7 {
		t.Errorf("%d are left, want 8 MiB", n)
	}
}
