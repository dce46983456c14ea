package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// read is what a file has, by what is said to be in it: a collection's or a blob's name, and all of its content.
func read(t *testing.T, b []byte) (map[string]string, *found) {
	t.Helper()
	f := scan(bytes.NewReader(b), int64(len(b)), 0, nil)
	all := map[string]string{}
	for k, s := range f.states {
		content := fmt.Sprint(s.last.moment)
		var objects []string
		r := &reader{file: bytes.NewReader(b), size: int64(len(b))}
		err := r.objects(s, func(o stream.Object) {
			objects = append(objects, fmt.Sprintf("%s %s %s", o.Key, o.Revision, o.Raw))
		})
		if err != nil {
			t.Fatalf("%s is said to be whole: %v", k, err)
		}
		slices.Sort(objects)
		all[k.String()] = content + strings.Join(objects, "\n")
	}
	return all, f
}

// aLog is a small file after each of some flushes: collections of one frame and of several, changes, blobs, and removals.
func aLog(t testing.TB) (files [][]byte) {
	t.Helper()
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	large, small := named("large"), named("small")
	all := snapshotOf(40, 30, 5)
	replace(t, s, large, all)
	for n := range 12 {
		r := edge.Revision(10 + n)
		switch n {
		case 3:
			replace(t, s, small, inHistory(1, snapshotOf(3, 20, r)))
		case 6:
			s.Drop(small)
		case 9:
			replace(t, s, small, snapshotOf(2, 700, r))
		}
		o := all.Objects[n*7%40]
		o.Revision, o.Raw = r, object(o.Key.Namespace, o.Key.Name, r, fmt.Sprint("changed ", n)).Raw
		kind := []stream.EventType{stream.Modified, stream.Deleted}[n%2]
		if err := s.Sink(large).Apply(context.Background(), []stream.Event{{Type: kind, Object: o}}); err != nil {
			t.Fatal(err)
		}
		if err := s.PutBlob("a", fmt.Append(nil, "value ", n)); err != nil {
			t.Fatal(err)
		}
		if n%5 == 4 {
			s.DropBlob("a")
		}
		flush(t, s)
		b, err := os.ReadFile(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	return files
}

// A file that ends anywhere has what it had after the last flush that is whole in it, and no word of corruption.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	files := aLog(t)
	last := files[len(files)-1]
	want, whole := map[string]string{}, 0
	for n := range len(last) + 1 {
		for _, b := range files {
			if len(b) == n {
				want, _ = read(t, b)
				whole = n
			}
		}
		got, f := read(t, last[:n])
		if !maps.Equal(got, want) || f.end != int64(whole) || f.torn != int64(n-whole) || f.corrupt != nil {
			t.Fatalf("cut to %d bytes: %d states up to %d, %d torn, %v; want %d up to %d",
				n, len(got), f.end, f.torn, f.corrupt, len(want), whole)
		}
	}
}

// Power that fails before a sync leaves any of the sectors that were written since the last one, or zeros: all of the batch
// counts, or nothing of it.
func TestUnsyncedSectors(t *testing.T) {
	t.Parallel()
	files, random := aLog(t), rand.New(rand.NewPCG(7, 9))
	for i := range len(files) - 1 {
		before, _ := read(t, files[i])
		after, _ := read(t, files[i+1])
		for range 300 / slow {
			b := append(slices.Clone(files[i]), make([]byte, len(files[i+1])-len(files[i]))...)
			const sector = 64 // smaller than any disk's, so that there are several in a batch
			for at := len(files[i]) / sector * sector; at < len(b); at += sector {
				if random.IntN(4) > 0 {
					copy(b[at:min(len(b), at+sector)], files[i+1][at:])
				}
			}
			got, f := read(t, b[:len(b)-random.IntN(2)*random.IntN(len(b)-len(files[i])+1)])
			if !maps.Equal(got, before) && !maps.Equal(got, after) || f.corrupt != nil {
				t.Fatalf("flush %d: %d states, corrupt: %v", i+1, len(got), f.corrupt)
			}
		}
	}
}

// A byte that is wrong, whichever, costs the key that it was of; or, if it was in a head, those that nothing was written of
// since; or the last flush. What is read is what was once written, and what is lost is said to be.
func TestEveryByteWrong(t *testing.T) {
	t.Parallel()
	files := aLog(t)
	last := files[len(files)-1]
	before, _ := read(t, files[len(files)-2])
	want, _ := read(t, last)
	alone := 0
	for at := range last {
		b := slices.Clone(last)
		b[at] ^= 1 << (at % 8)
		got, f := read(t, b)
		if maps.Equal(got, before) && f.torn > 0 {
			continue
		}
		for k, content := range got {
			if content != want[k] {
				t.Fatalf("byte %#x is wrong: %s is %.80q", at, k, content)
			}
		}
		if len(got) < len(want) && f.corrupt == nil {
			t.Fatalf("byte %#x is wrong: %d of %d states, and nothing is said", at, len(got), len(want))
		}
		if len(got) == len(want)-1 {
			alone++
		}
	}
	if alone < len(last)/2 {
		t.Errorf("in %d of %d cases one state alone was lost: want most", alone, len(last))
	}
}

// FuzzScan: whatever bytes are taken for a file, reading it ends, without a panic and in bounded memory, and what is found is
// whole.
func FuzzScan(f *testing.F) {
	f.Add([]byte("no file"), uint32(0), byte(0))
	f.Add([]byte(magic), uint32(100), byte(3))
	files := aLog(f)
	f.Fuzz(func(t *testing.T, junk []byte, at uint32, mask byte) {
		b := bytes.Clone(files[len(files)-1])
		b[int(at)%len(b)] ^= mask
		copy(b[int(at)%len(b):], junk)
		read(t, junk)
		read(t, b)
	})
}

func TestHeadsRoundTrip(t *testing.T) {
	t.Parallel()
	head := frame{
		key: key{Collection: named("x")}, moment: edge.Moment{History: 3, Revision: 77}, before: 5, seconds: 1e6, kind: goesOn,
		form: packed, batch: 9, prev: 1 << 40, body: 12, size: 13, sum: 1 << 63,
	}
	head.typ.Kind, head.typ.Encoding = "Pod", stream.Protobuf
	var got frame
	if b := head.encode(); !got.decode(b) || got != head {
		t.Fatalf("%+v, want %+v", got, head)
	} else if got.decode(b[:len(b)-1]) || got.decode(append(b, 0)) {
		t.Fatal("other bytes are taken for a head")
	}
}

// growing is a collection of half a megabyte, each flush of which appends 160 KB to the file.
type growing struct {
	t    *testing.T
	s    *Store
	want stream.Snapshot
}

// change changes 20 objects, or all if the store wants that.
func (g *growing) change() {
	g.t.Helper()
	var events []stream.Event
	for range 20 {
		g.want.Revision++
		o := &g.want.Objects[int(g.want.Revision)*7%len(g.want.Objects)]
		*o = object(o.Key.Namespace, o.Key.Name, g.want.Revision, filler(uint64(g.want.Revision), 8000))
		events = append(events, stream.Event{Type: stream.Modified, Object: *o})
	}
	k := g.s.Sink(slicesID)
	err := k.Apply(g.t.Context(), events)
	if k.Position() == 0 {
		err = k.Replace(g.t.Context(), g.want)
	}
	must(g.t, err)
}

// grow changes and flushes so often, and has each looked at.
func (g *growing) grow(flushes int, look func()) {
	g.t.Helper()
	for range flushes {
		g.change()
		flush(g.t, g.s)
		look()
	}
}

// While the file is compacted, who reads has a state that was, and no older one than before; the file stays small.
func TestCompactionBesideReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	must(t, s.PutBlob("a", []byte("b")))
	var reading sync.WaitGroup
	ended := make(chan struct{})
	reading.Go(func() {
		for seen := edge.Revision(0); ; {
			select {
			case <-ended:
				return
			default:
			}
			got, err := s.Load(slicesID)
			if err != nil && seen > 0 || err == nil && got.Revision < seen {
				t.Errorf("at %s, after %s: %v", got.Revision, seen, err)
				return
			}
			seen = got.Revision
		}
	})
	shrunk, size := 0, int64(0)
	g := &growing{t, s, snapshotOf(60, 8000, 5)}
	g.grow(100, func() {
		info, err := os.Stat(filepath.Join(dir, fileName))
		must(t, err)
		if info.Size() < size {
			shrunk++
			holds(t, s, slicesID, g.want)
		}
		if size = info.Size(); size > 2*s.Health().Bytes+compactBytes+1<<20 {
			t.Fatalf("%d bytes, of which %d are in use", size, s.Health().Bytes)
		}
	})
	close(ended)
	reading.Wait()
	if shrunk < 2 {
		t.Errorf("compacted %d times", shrunk)
	}
	_ = s.Close()
	s = opening(t, Config{Dir: dir}, nil)
	holds(t, s, slicesID, g.want)
	if b, err := s.Blob("a"); err != nil || string(b) != "b" {
		t.Errorf("%q, %v", b, err)
	}
}

// A compaction that fails, or is broken off, leaves what was there, and what is written then; it is tried again.
func TestCompactionFails(t *testing.T) {
	t.Parallel()
	dir, fails, tries, renamed := t.TempDir(), true, 0, 0
	s := opening(t, Config{Dir: dir}, func(point string) error {
		if point == "renamed" {
			if renamed++; renamed == 1 {
				return unix.EIO
			}
		}
		if point != "rewrite" {
			return nil
		}
		if tries++; fails {
			return unix.ENOSPC
		}
		return nil
	})
	g := &growing{t, s, snapshotOf(60, 8000, 5)}
	g.grow(100, func() {})
	if h := s.Health(); h.Err != "" {
		t.Fatalf("%+v", h)
	}
	if tries < 2 || tries > 5 {
		t.Errorf("tried %d times", tries)
	}
	info, err := os.Stat(filepath.Join(dir, fileName))
	must(t, err)
	fails = false
	// The new file is in its place, and nobody knows whether that lasts: all is verified anew before more is written.
	for n := 0; s.Health().Err == ""; n++ {
		if n == 100 {
			t.Fatal("it was not compacted again")
		}
		g.change()
		flush(t, s)
	}
	must(t, s.recover(t.Context()))
	holds(t, s, slicesID, g.want)
	g.grow(100, func() {})
	if after, err := os.Stat(filepath.Join(dir, fileName)); err != nil || after.Size() > info.Size() {
		t.Errorf("%d bytes, were %d: %v", after.Size(), info.Size(), err)
	}
	_ = s.Close()
	// A crash leaves any part of the new file beside the old one.
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, newName), whole[:len(whole)/3], 0o600))
	s = opening(t, Config{Dir: dir}, nil)
	holds(t, s, slicesID, g.want)
	if _, err := os.Stat(filepath.Join(dir, newName)); !os.IsNotExist(err) {
		t.Errorf("what a crash has left is still there: %v", err)
	}
	if h := s.Health(); h.Corrupt != "" || h.Torn != 0 {
		t.Errorf("%+v", h)
	}
}

// A compaction leaves out a state that has gone bad. What was queued on top of that state must not become all of the collection.
func TestChangesOfAStateThatACompactionLosesAreLost(t *testing.T) {
	t.Parallel()
	s := opening(t, Config{Dir: t.TempDir()}, nil)
	replace(t, s, slicesID, snapshotOf(3, 100, 5))
	flush(t, s)
	change := stream.Event{Type: stream.Modified, Object: object("ns", "late", 6, "x")}
	must(t, s.Sink(slicesID).Apply(t.Context(), []stream.Event{change}))
	last := s.entries[key{Collection: slicesID}].state.frames[0]
	_, err := s.log.file.WriteAt([]byte("bad"), last.at+int64(last.bytes)-3)
	must(t, err)
	must(t, s.compact())
	flush(t, s)
	if at := onDisk(t, s, slicesID); at != (edge.Moment{}) {
		t.Errorf("the disk has the collection as of %s", at)
	}
	if at := s.Sink(slicesID).Position(); at != 0 {
		t.Errorf("its Sink is at %s", at)
	}
	replace(t, s, slicesID, snapshotOf(3, 100, 7))
	flush(t, s)
	holds(t, s, slicesID, snapshotOf(3, 100, 7))
	if s.queued != 0 {
		t.Errorf("%d bytes are queued", s.queued)
	}
}

// badSectors is a disk of which some cannot be read.
type badSectors struct {
	content []byte
	bad     map[int64]bool
}

func (b badSectors) ReadAt(p []byte, at int64) (int, error) {
	for n := range int64(len(p)) {
		if b.bad[(at+n)/512] {
			return copy(p[:n], b.content[at:]), unix.EIO
		}
	}
	return bytes.NewReader(b.content).ReadAt(p, at)
}

// A sector that cannot be read is as corrupt as one with wrong bits, and is said to be so wherever it is: nothing is cut off
// for it.
func TestSectorsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	files := aLog(t)
	last := files[len(files)-1]
	all, _ := read(t, last)
	for sector := range int64(len(last))/512 + 1 {
		f := scan(badSectors{last, map[int64]bool{sector: true}}, int64(len(last)), 0, nil)
		if f.corrupt == nil || len(f.states) > len(all) {
			t.Errorf("sector %d: %d states, %v", sector, len(f.states), f.corrupt)
		}
	}
}
