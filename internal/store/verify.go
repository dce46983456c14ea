package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/store/pages"
	"yurtcoordinator/internal/stream"
)

// stored is a collection on disk.
type stored struct {
	header
	number  uint64
	bucket  pages.Bucket // where it was when it was verified
	misread bool         // read is not as the disk has it, which makes no sense
}

// contents is what a file holds, verified: every collection and blob in it is whole.
type contents struct {
	vault       *vault
	size        int64       // of the file
	tree        *pages.Tree // the state that was verified; nil: none
	collections []stored
	blobs       map[string]int // key → bytes of the value
	tally       tally          // of the blobs
	blobBucket  pages.Bucket
	asked       time.Duration // what the clock showed
	unfinished  []uint64      // collections that a crash left incomplete, or that are encrypted with another key
	foreign     int           // how many collections and blobs are encrypted with another key
	lockedBlobs []string      // keys of these
	problems    []string      // what was found corrupt
	free        int           // pages
}

func (c *contents) problem(where string, err error) {
	const enough = 8
	if len(c.problems) < enough {
		c.problems = append(c.problems, strings.TrimPrefix(fmt.Sprintf("%s: %v", where, err), ": "))
	}
}

// verify reads all of a file once. It fails only when not even the heads can be read, so that nothing is known of what is
// there; pages.ErrCorrupt is not a failure but a problem. A sector that cannot be read is as corrupt as one with wrong bits.
func verify(r io.ReaderAt, size int64, v *vault) (*contents, error) {
	c := &contents{size: size, blobs: map[string]int{}, vault: v}
	t, err := pages.Read(r, size)
	if errors.Is(err, pages.ErrCorrupt) {
		c.problem("", err)
		return c, nil
	} else if err != nil {
		return nil, err
	}
	t.VisitOnce()
	c.tree = t
	buckets, err := t.Buckets()
	if err != nil {
		c.problem("the root", err)
	}
	blobs, foreign := c.format(buckets)
	if foreign {
		return c, nil
	}
	c.verifyCollections(buckets)
	c.verifyBlobs(buckets, blobs)
	if c.free, err = t.CheckFree(); err != nil {
		c.problem("the list of free pages", err)
	}
	return c, nil
}

// format verifies the first bucket and returns what it says of the blobs. A foreign format is not read any further.
func (c *contents) format(buckets map[string]pages.Bucket) (blobs tally, foreign bool) {
	values := map[string][]byte{}
	for _, name := range []string{bucketFormat, bucketCollections, bucketBlobs} {
		if _, ok := buckets[name]; !ok {
			c.problem(name, pages.Corrupt("it is missing"))
		}
	}
	b, ok := buckets[bucketFormat]
	if !ok {
		return blobs, false
	}
	err := c.tree.Walk(b, func(key, value []byte, _ bool) error {
		values[string(key)] = bytes.Clone(value)
		return nil
	})
	if err != nil {
		c.problem(bucketFormat, err)
	}
	version, err := unseal(ofFormat, 0, []byte(keyFormat), values[keyFormat])
	if err != nil {
		c.problem(bucketFormat, err)
	} else if !bytes.Equal(version, []byte{formatVersion}) {
		c.problem(bucketFormat, fmt.Errorf("the file's version is %v, this program knows %d only", version, formatVersion))
		return blobs, true
	}
	raw, err := unseal(ofBlobs, 0, []byte(keyBlobs), values[keyBlobs])
	if err != nil || !blobs.decode(raw) {
		c.problem(bucketFormat, pages.Corrupt("the number of the blobs"))
	}
	raw, err = unseal(ofAsked, 0, []byte(keyAsked), values[keyAsked])
	known := err == nil && len(raw) == 8
	if known {
		c.asked, known = seconds(raw)
	}
	if !known {
		c.asked = 0
		c.problem(bucketFormat, pages.Corrupt("the clock"))
	}
	return blobs, false
}

func (c *contents) verifyCollections(buckets map[string]pages.Bucket) {
	headers := map[uint64]header{}
	err := c.tree.Walk(buckets[bucketCollections], func(key, value []byte, nested bool) error {
		if len(key) != 8 || nested {
			return pages.Corrupt("the collection number %x", key)
		}
		number := binary.BigEndian.Uint64(key)
		if h, err := decodeHeader(number, value); err != nil {
			c.problem("a collection", err)
		} else {
			headers[number] = h
		}
		return nil
	})
	if err != nil && buckets[bucketCollections].Exists() {
		c.problem(bucketCollections, err)
	}
	ids := map[Collection]bool{}
	for name, b := range buckets {
		suffix, ok := strings.CutPrefix(name, bucketObjects)
		if !ok || len(suffix) != 8 {
			if name != bucketFormat && name != bucketCollections && name != bucketBlobs {
				c.problem("the root", pages.Corrupt("a bucket %q", name))
			}
			continue
		}
		number := binary.BigEndian.Uint64([]byte(suffix))
		h, known := headers[number]
		delete(headers, number)
		switch {
		case !known:
			c.problem("a collection", pages.Corrupt("its header is missing"))
		case !h.complete:
			c.unfinished = append(c.unfinished, number)
			_, _ = new(coder).scan(c.tree, number, b, nil) // whatever is in it, its pages are in use
			continue
		}
		reader := coder{vault: c.vault}
		found, err := reader.scan(c.tree, number, b, nil)
		if errors.Is(err, errForeign) {
			c.foreign++
			c.unfinished = append(c.unfinished, number)
			continue
		}
		if known && err == nil && found != h.objects {
			err = pages.Corrupt("it has %d objects, want %d, or others", found.count, h.objects.count)
		}
		if known && err == nil && ids[h.id] {
			err = pages.Corrupt("it is there twice")
		}
		if err != nil {
			c.problem(h.id.String(), err)
		} else if known {
			ids[h.id] = true
			c.collections = append(c.collections, stored{header: h, number: number, bucket: b})
		}
	}
	for _, h := range headers {
		c.problem(h.id.String(), pages.Corrupt("its objects are missing"))
	}
}

// scan verifies the objects of a collection one by one and tells them. What it tells is valid only until tell returns. If
// nobody is told, it goes on behind those that are encrypted with another key, and says errForeign at the end.
func (c *coder) scan(
	t *pages.Tree, number uint64, b pages.Bucket, tell func(key, value []byte, o stream.Object) error,
) (tally, error) {
	var found tally
	var foreign error
	err := t.Walk(b, func(key, value []byte, nested bool) error {
		if nested {
			return pages.Corrupt("%q is a bucket", key)
		}
		o, err := c.decode(number, key, value)
		if tell == nil && errors.Is(err, errForeign) {
			foreign = errForeign
			return nil
		}
		if err != nil {
			return err
		}
		found.put(value, valueHead)
		if tell == nil {
			return nil
		}
		return tell(key, value, o)
	})
	if err == nil {
		err = foreign
	}
	return found, err
}

func (c *contents) verifyBlobs(buckets map[string]pages.Bucket, want tally) {
	b := buckets[bucketBlobs]
	if !b.Exists() {
		return
	}
	c.blobBucket = b
	err := c.tree.Walk(b, func(key, value []byte, nested bool) error {
		content, err := c.vault.unsealBlob(key, value)
		switch {
		case err == nil && nested:
			c.problem("a blob", pages.Corrupt("%q is a bucket", key))
		case errors.Is(err, errForeign):
			c.foreign++
			c.lockedBlobs = append(c.lockedBlobs, string(key))
			c.tally.put(value, sealHead)
		case err != nil:
			c.problem("a blob", err)
		default:
			c.blobs[string(key)] = len(content)
			c.tally.put(value, sealHead)
		}
		return nil
	})
	if err == nil && c.tally != want {
		err = pages.Corrupt("there are %d, want %d, or others", c.tally.count, want.count)
	}
	if err != nil {
		c.problem(bucketBlobs, err)
	}
}

// loadCollection reads one collection of a state of the file.
func loadCollection(t *pages.Tree, want stored, v *vault) (stream.Snapshot, error) {
	b, err := t.Bucket([]byte(bucketCollections))
	if err != nil {
		return stream.Snapshot{}, err
	}
	raw, err := t.Get(b, numberKey(want.number))
	if err != nil {
		return stream.Snapshot{}, err
	}
	h, err := decodeHeader(want.number, raw)
	if err != nil {
		return stream.Snapshot{}, err
	}
	if h.id != want.id || !h.complete {
		return stream.Snapshot{}, pages.Corrupt("its header is another's")
	}
	if b, err = t.Bucket(objectsOf(want.number)); err != nil {
		return stream.Snapshot{}, err
	}
	const most = 1 << 16 // what a header says is not worth more memory than that before it is proved
	s := stream.Snapshot{
		Type: h.typ, Revision: h.at.Revision, History: h.at.History, Before: h.before,
		Objects: make([]stream.Object, 0, min(h.objects.count, most)),
	}
	reader := coder{vault: v}
	found, err := reader.scan(t, want.number, b, func(_, _ []byte, o stream.Object) error {
		o.Raw = slices.Clip(bytes.Clone(o.Raw))
		s.Objects = append(s.Objects, o)
		return nil
	})
	if err == nil && found != h.objects {
		err = pages.Corrupt("it has %d objects, want %d, or others", found.count, h.objects.count)
	}
	if err != nil {
		return stream.Snapshot{}, err
	}
	return s, nil
}
