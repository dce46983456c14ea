package pages

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// all reads every bucket of a state, each page once, and checks that every page is in use or free.
func all(t *Tree) (map[string]map[string]string, error) {
	t.VisitOnce()
	buckets, err := t.Buckets()
	if err != nil {
		return nil, err
	}
	content := map[string]map[string]string{}
	for name, b := range buckets {
		content[name] = map[string]string{}
		err := t.Walk(b, func(key, value []byte, nested bool) error {
			if nested {
				return Corrupt("%q is a bucket", key)
			}
			content[name][string(key)] = string(value)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if _, err := t.CheckFree(); err != nil {
		return nil, err
	}
	for id := uint64(2); id < t.High; id++ {
		if t.seen[id/64]&(1<<(id%64)) == 0 {
			return nil, Corrupt("page %d is neither in use nor free", id)
		}
	}
	return content, nil
}

// written is what testdata/generate writes.
func written() map[string]map[string]string {
	content := map[string]map[string]string{
		"deep": {}, "empty": {}, "inline": {}, "large": {"run": strings.Repeat("0123456789", 500)},
	}
	for i := range 500 {
		if i%3 != 0 {
			content["deep"][fmt.Sprintf("key-%04d", i)] = fmt.Sprintf("value %d", i)
		}
		if i < 3 {
			content["inline"][fmt.Sprintf("key-%04d", i)] = fmt.Sprintf("value %d", i)
		}
	}
	return content
}

func image(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func equal(a, b map[string]map[string]string) bool {
	return maps.EqualFunc(a, b, maps.Equal)
}

// What each release of bbolt writes is read as it was written. testdata/generate/all.sh adds those to come.
func TestReleases(t *testing.T) {
	list, err := os.ReadFile("testdata/releases")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(list)), "\n")
	if len(lines) < 16 {
		t.Errorf("%d releases, there were 16 once", len(lines))
	}
	for _, line := range lines {
		version, name, _ := strings.Cut(line, " ")
		t.Run(version, func(t *testing.T) {
			b := image(t, name)
			tree, err := Read(bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatal(err)
			}
			content, err := all(tree)
			if err != nil || !equal(content, written()) {
				t.Fatalf("%v; %d buckets that are not what was written", err, len(content))
			}
			if tree.PageSize != 512 || tree.TxID != 6 {
				t.Errorf("pages of %d, transaction %d", tree.PageSize, tree.TxID)
			}
			deep, err := tree.Again().Bucket([]byte("deep"))
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{"key-0001": "value 1", "key-0499": "value 499", "key-0000": ""} {
				value, err := tree.Again().Get(deep, []byte(key))
				if string(value) != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: %q, %v", key, value, err)
				}
			}
		})
	}
}

// After any transaction of the bbolt that is built in, with either kind of its list of free pages, a file is read as bbolt
// reads it; and after a commit that was cut short before its head was written, the state before it.
func TestAsBbolt(t *testing.T) {
	for _, kind := range []bbolt.FreelistType{bbolt.FreelistArrayType, bbolt.FreelistMapType} {
		t.Run(string(kind), func(t *testing.T) { asBbolt(t, kind) })
	}
}

func asBbolt(t *testing.T, kind bbolt.FreelistType) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: kind, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	random, want := rand.New(rand.NewPCG(1, 2)), map[string]map[string]string{}
	for range 60 {
		if err := db.Update(func(tx *bbolt.Tx) error { return change(tx, random, want) }); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := all(tree); err != nil || !equal(got, want) {
			t.Fatalf("transaction %d: %v, or other content", tree.TxID, err)
		}
		torn := bytes.Clone(b)
		for i := range 64 { // the head of the latest state
			torn[int(tree.TxID%2)*tree.PageSize+pageHeader+i] ^= 0xFF
		}
		if before, err := Read(bytes.NewReader(torn), int64(len(torn))); err != nil || before.TxID != tree.TxID-1 {
			t.Fatalf("with the head of %d torn: %v, %v", tree.TxID, before, err)
		}
	}
}

func change(tx *bbolt.Tx, random *rand.Rand, want map[string]map[string]string) error {
	name := fmt.Sprint("bucket", random.IntN(6))
	if want[name] != nil && random.IntN(5) == 0 {
		delete(want, name)
		return tx.DeleteBucket([]byte(name))
	}
	if want[name] == nil {
		want[name] = map[string]string{}
	}
	b, err := tx.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	for range random.IntN(300) {
		key := fmt.Sprint(random.IntN(1000))
		if random.IntN(3) == 0 {
			delete(want[name], key)
			err = b.Delete([]byte(key))
		} else {
			want[name][key] = strings.Repeat(key, 1+random.IntN(40)*random.IntN(40))
			err = b.Put([]byte(key), []byte(want[name][key]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A file with wrong bits is read as it was, as it was a transaction earlier, or is corrupt: never with other content that
// does not fit, without a panic, and in an end. (Values have no checksum here: their bits may differ, their keys' order not.)
func TestWrongBits(t *testing.T) {
	content := image(t, "v1.3.2.db.gz")
	random, corrupted := rand.New(rand.NewPCG(3, 4)), 0
	for range 2000 {
		b := bytes.Clone(content)
		at := 512*random.IntN(len(b)/512) + random.IntN(64)
		b[at] ^= 1 << random.IntN(8)
		tree, err := Read(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			_, err = all(tree)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %#x: %v", at, err)
		}
		if err != nil {
			corrupted++
		}
	}
	if corrupted < 100 {
		t.Errorf("only %d of 2000 files were found corrupt", corrupted)
	}
	for size := range slices.Values([]int{0, 1, 512, 600, 1024, len(content) / 8}) {
		if tree, err := Read(bytes.NewReader(content[:size]), int64(size)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v, %v", size, tree, err)
		}
	}
}

// A disk that cannot be read is not taken for a file that is corrupt.
func TestUnreadable(t *testing.T) {
	broken := errors.New("a sector that cannot be read")
	if _, err := Read(failing{broken}, 1<<20); !errors.Is(err, broken) || errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// Whatever bytes are taken for a file, reading it ends, without a panic.
func FuzzRead(f *testing.F) {
	content := image(f, "v1.3.2.db.gz")
	f.Add([]byte{}, uint32(600), byte(1))
	f.Fuzz(func(t *testing.T, junk []byte, at uint32, mask byte) {
		b := bytes.Clone(content)
		b[int(at)%len(b)] ^= mask
		copy(b[int(at)%len(b):], junk)
		for _, file := range [][]byte{junk, b} {
			if tree, err := Read(bytes.NewReader(file), int64(len(file))); err == nil {
				_, _ = all(tree)
			}
		}
	})
}
