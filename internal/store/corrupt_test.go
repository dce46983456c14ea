package store

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

var flips = flag.Int("store.flips", 300, "how many files with wrong bits to open")

// past is a file's history: what each collection and blob was after each flush.
type past struct {
	dir    string
	states map[Collection][]stream.Snapshot
	blobs  map[string][]string
	files  [][]byte // after each flush
	checks int
}

// makePast writes a few collections, with changes, deletions and replacements, so that all kinds of pages are there.
func makePast(t *testing.T, flushes int) *past {
	t.Helper()
	p := &past{dir: t.TempDir(), states: map[Collection][]stream.Snapshot{}, blobs: map[string][]string{}}
	s := opening(t, Config{Dir: p.dir}, nil)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 5 {
		id := slicesID
		id.Client = fmt.Sprint("client", i)
		replace(t, s, id, snapshotOf([]int{0, 2, 20, 150, 400}[i], 300, 1))
	}
	for n := range flushes {
		revision := edge.Revision(10 * (n + 2))
		for _, i := range []int{2, 3, 4} {
			id := slicesID
			id.Client = fmt.Sprint("client", i)
			var events []stream.Event
			for k := range 3 {
				key := random.IntN(200)
				o := object(fmt.Sprintf("ns%02d", key%7), fmt.Sprintf("slice-%05d", key),
					revision+edge.Revision(k), fmt.Sprint(n, k))
				kind := []stream.EventType{stream.Added, stream.Deleted}[random.IntN(2)]
				events = append(events, stream.Event{Type: kind, Object: o})
			}
			if err := s.Sink(id).Apply(context.Background(), events); err != nil {
				t.Fatal(err)
			}
		}
		for k := range 3 {
			key, value := fmt.Sprint("blob", k), fmt.Sprint("value ", n, k)
			if err := s.PutBlob(key, []byte(value)); err != nil {
				t.Fatal(err)
			}
			p.blobs[key] = append(p.blobs[key], value)
		}
		flush(t, s)
		for i := range 5 {
			id := slicesID
			id.Client = fmt.Sprint("client", i)
			snapshot, err := s.Load(id)
			if err != nil {
				t.Fatal(err)
			}
			p.states[id] = append(p.states[id], snapshot)
		}
		b, err := os.ReadFile(filepath.Join(p.dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, b)
	}
	_ = s.Close()
	return p
}

// check opens a file that may be damaged. Everything in it must be as it was after one of the flushes from first on, or
// missing; it returns how much is missing. Then it must be possible to write.
func (p *past) check(t *testing.T, content []byte, first int, what string) (missing int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer func() { _ = s.Close() }()
	for id, states := range p.states {
		got, err := s.Load(id)
		if err != nil {
			missing++
		} else if !slices.ContainsFunc(states[first:], func(want stream.Snapshot) bool { return same(want, got) }) {
			t.Fatalf("%s: %s holds %d objects at %s, which it never did", what, id, len(got.Objects), got.Revision)
		}
	}
	for key, values := range p.blobs {
		got, err := s.Blob(key)
		if err != nil {
			missing++
		} else if !slices.Contains(values[first:], string(got)) {
			t.Fatalf("%s: %s is %q, which it never was", what, key, got)
		}
	}
	if h := s.Health(); missing > 0 && h.Corrupt == "" && h.Torn == 0 || h.Err != "" {
		t.Fatalf("%s: %d missing, health %+v", what, missing, h)
	}
	for id := range p.states {
		_, err := s.Load(id)
		if at := s.Sink(id).Position(); (at == 0) != (err != nil) {
			t.Fatalf("%s: %s: Load gives %v, and a Sink goes on at %s", what, id, err, at)
		}
	}
	for _, key := range s.Blobs("") {
		if _, err := s.Blob(key); err != nil {
			t.Fatalf("%s: %s is listed: %v", what, key, err)
		}
	}
	if p.checks++; missing == 0 && p.checks%8 != 0 {
		return 0
	}
	for id := range p.states {
		replace(t, s, id, snapshotOf(50, 100, 1e6))
	}
	flush(t, s)
	for id := range p.states {
		holds(t, s, id, snapshotOf(50, 100, 1e6))
	}
	return missing
}

// A bit that is wrong, anywhere, gives the right content or a miss, and a file that can be written.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	p := makePast(t, 6)
	last := p.files[len(p.files)-1]
	if p.check(t, last, len(p.files)-1, "intact") != 0 {
		t.Fatal("an intact file misses something")
	}
	random := rand.New(rand.NewPCG(3, 4))
	missing := 0
	for i := range *flips / slow {
		b := slices.Clone(last)
		at := random.IntN(8 * len(b))
		if i%2 == 0 { // heads of frames are few, and matter most
			frame := bytes.Index(b[random.IntN(len(b)):], []byte(magic))
			at = 8*(max(0, frame)+random.IntN(120)) + random.IntN(8)
		}
		b[at/8] ^= 1 << (at % 8)
		missing += p.check(t, b, len(p.files)-2, fmt.Sprintf("bit %d of byte %#x", at%8, at/8))
	}
	if missing == 0 || missing > *flips/slow*4 {
		t.Errorf("%d of %d things missing", missing, *flips/slow*(len(p.states)+len(p.blobs)))
	}
	t.Logf("%d of %d things missing", missing, *flips/slow*(len(p.states)+len(p.blobs)))
}

// Sectors that are lost, pages in the place of others, and files cut short.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	p := makePast(t, 6)
	last := p.files[len(p.files)-1]
	random := rand.New(rand.NewPCG(5, 6))
	page := func(b []byte) []byte { at := 4096 * random.IntN(len(b)/4096); return b[at : at+4096] }
	for i := range 100 / slow {
		b := slices.Clone(last)
		switch what := fmt.Sprint("damage ", i); i % 4 {
		case 0:
			clear(page(b))
			p.check(t, b, len(p.files)-2, what)
		case 1:
			copy(page(b), page(last))
			p.check(t, b, len(p.files)-2, what)
		case 2:
			p.check(t, b[:random.IntN(len(b))], 0, what) // as if less had ever been written
		case 3: // an old sector in the place of a new one
			at := 4096 * random.IntN(len(p.files[2])/4096)
			copy(b[at:at+4096], p.files[2][at:])
			p.check(t, b, 0, what)
		}
	}
	for _, b := range [][]byte{[]byte("hello"), make([]byte, 100_000)} {
		if missing := p.check(t, b, 0, "no store at all"); missing != len(p.states)+len(p.blobs) {
			t.Errorf("%d missing", missing)
		}
	}
}

// Power that fails in the middle of a transaction leaves any part of what it wrote before its sync.
func TestTornTransactions(t *testing.T) {
	t.Parallel()
	p := makePast(t, 8)
	random := rand.New(rand.NewPCG(7, 8))
	for i := range len(p.files) - 1 {
		before, after := p.files[i], p.files[i+1]
		for try := range 12 / slow {
			b := slices.Clone(before)
			b = append(b, make([]byte, max(0, len(after)-len(before)))...)
			for at := 0; at < len(after); at += 4096 {
				if random.IntN(2) == 0 {
					copy(b[at:min(len(b), at+4096)], after[at:])
				}
			}
			what := fmt.Sprintf("flush %d, try %d", i, try)
			if missing := p.check(t, b, i, what); missing != 0 {
				t.Fatalf("%s: %d missing", what, missing)
			}
		}
	}
}

// Only what is corrupt is lost.
func TestSalvage(t *testing.T) {
	p := makePast(t, 4)
	b := slices.Clone(p.files[len(p.files)-1])
	marker := []byte("slice-00399")
	at := bytes.LastIndex(b, marker)
	b[at] ^= 1
	if missing := p.check(t, b, len(p.files)-1, "one object"); missing != 1 {
		t.Fatalf("%d missing, want 1", missing)
	}
}

// A file that goes bad under a running store gives a miss; then all of it is verified, and what is intact is kept.
func TestCorruptWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	other := slicesID
	other.Client = "other"
	replace(t, s, slicesID, snapshotOf(30, 500, 3))
	replace(t, s, other, snapshotOf(3, 3, 3))
	flush(t, s)
	path := filepath.Join(dir, fileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte(filler(5, 5)))] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil { // in place
		t.Fatal(err)
	}
	misses(t, s, slicesID, "checksum")
	if h := s.Health(); h.Err == "" {
		t.Fatal("it is not known that the file is bad")
	}
	if err := s.recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	if h := s.Health(); h.Err != "" || h.Corrupt == "" {
		t.Fatalf("%+v", h)
	}
	misses(t, s, slicesID, "checksum")
	holds(t, s, other, snapshotOf(3, 3, 3))
	if p := s.Sink(slicesID).Position(); p != 0 {
		t.Fatalf("position %s", p)
	}
}
