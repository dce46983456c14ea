// Package pages reads and verifies a bbolt file without bbolt: page by page, with plain reads, believing nothing. bbolt
// follows a wild page through its memory map, into a fault or for ever, and checks in goroutines that nobody can recover.
//
// Invariants:
//
//   - What is read is bounded by the file's size, whatever the file says.
//   - A page is checked before it is followed: its number, its type, and that its keys are in order and within the bounds
//     that the page above it gives.
//   - A file that any release of bbolt since 1.3 has written is read as bbolt itself reads it.
package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// ErrCorrupt says that bytes are not what was written. What wraps it says where.
var ErrCorrupt = errors.New("corrupt")

// Corrupt is an ErrCorrupt that says what is wrong.
func Corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// The layout of bbolt's files, version 2, in the byte order of the machine.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeader  = 16 // id 8, flags 2, count 2, overflow 4
	elementSize = 16 // leaf: flags 4, position 4, key 4, value 4; branch: position 4, key 4, page 8
	metaSize    = 64
	bucketSize  = 16 // root page 8, sequence 8; with root 0 a page follows

	branchPage, leafPage, freelistPage = 0x01, 0x02, 0x10

	minPageSize, maxPageSize = 512, 64 << 10
	// MaxRun bounds the bytes of one page with its overflow: three objects of the largest size that streams allow.
	MaxRun = 32 << 20
	// maxDepth of a tree: bbolt's have 2 children at least, ours are of depth 4.
	maxDepth = 24
)

var order = binary.NativeEndian

// Tree reads one committed state of a bbolt file, page by page, and believes nothing: what it reads is bounded by the
// file's size, and every page is checked before it is followed. bbolt itself follows a wild page through its memory map,
// into a fault or for ever. Used by one goroutine.
type Tree struct {
	r        io.ReaderAt
	PageSize int
	// TxID is the number of the transaction that wrote this state.
	TxID     uint64
	root     uint64
	freelist uint64
	// High is the number of the first page that is neither in use nor free.
	High    uint64
	seen    []uint64 // one bit for a page that was visited; nil while nobody keeps count
	buffers [][]byte // one for each level
}

// Bucket is where a bucket of bbolt has its pages.
type Bucket struct {
	root   uint64
	inline []byte // its only page, if root is 0
}

// Read finds the latest committed state of a file of size bytes. It fails with ErrCorrupt if there is none.
func Read(r io.ReaderAt, size int64) (*Tree, error) {
	first, err := readMeta(r, 0)
	var second *Tree
	if first != nil {
		second, _ = readMeta(r, int64(first.PageSize)) // torn by a crash, or the only one left: either is enough
	} else {
		for at := int64(minPageSize); at <= maxPageSize && second == nil; at *= 2 {
			if t, e := readMeta(r, at); e == nil && int64(t.PageSize) == at {
				second = t
			}
		}
	}
	latest := first
	if latest == nil || second != nil && second.PageSize == first.PageSize && second.TxID > first.TxID {
		latest = second
	}
	if latest == nil {
		return nil, fmt.Errorf("neither of the file's heads can be read: %w", err)
	}
	if latest.High > uint64(size)/uint64(latest.PageSize) {
		return nil, Corrupt("the file is cut short: %d bytes, %d pages of %d are in it", size, latest.High, latest.PageSize)
	}
	return latest, nil
}

func readMeta(r io.ReaderAt, at int64) (*Tree, error) {
	var b [pageHeader + metaSize]byte
	if _, err := r.ReadAt(b[:], at); errors.Is(err, io.EOF) {
		return nil, Corrupt("no head at %d", at)
	} else if err != nil {
		return nil, fmt.Errorf("read a head at %d: %w", at, err)
	}
	m := b[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaSize-8]) // it never fails
	t := &Tree{
		r: r, PageSize: int(order.Uint32(m[8:])), root: order.Uint64(m[16:]), freelist: order.Uint64(m[32:]),
		High: order.Uint64(m[40:]), TxID: order.Uint64(m[48:]),
	}
	switch {
	case order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion:
		return nil, Corrupt("no file of bbolt's version %d", boltVersion)
	case order.Uint64(m[metaSize-8:]) != sum.Sum64():
		return nil, Corrupt("the head at %d has a wrong checksum", at)
	case t.PageSize < minPageSize || t.PageSize > maxPageSize || t.PageSize&(t.PageSize-1) != 0:
		return nil, Corrupt("pages of %d bytes", t.PageSize)
	}
	return t, nil
}

// VisitOnce makes it an error, from now on, to visit a page twice: for who visits them all.
func (t *Tree) VisitOnce() { t.seen = make([]uint64, t.High/64+1) }

// Again is the same state for who visits pages another time.
func (t *Tree) Again() *Tree {
	again := *t
	again.seen, again.buffers = nil, nil
	return &again
}

// visit marks pages; each may be visited once when all are.
func (t *Tree) visit(id, n uint64) error {
	if t.seen == nil {
		return nil
	}
	for i := id; i < id+n; i++ {
		if t.seen[i/64]&(1<<(i%64)) != 0 {
			return Corrupt("page %d is used twice", i)
		}
		t.seen[i/64] |= 1 << (i % 64)
	}
	return nil
}

// read returns a page with its overflow, valid until the next read at that depth.
func (t *Tree) read(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= t.High {
		return nil, Corrupt("page %d of %d", id, t.High)
	}
	if depth > maxDepth {
		return nil, Corrupt("the tree is too deep at page %d", id)
	}
	for len(t.buffers) <= depth {
		t.buffers = append(t.buffers, make([]byte, t.PageSize))
	}
	b := t.buffers[depth][:t.PageSize]
	if err := t.fill(b, id); err != nil {
		return nil, err
	}
	if got := order.Uint64(b); got != id {
		return nil, Corrupt("page %d says it is %d", id, got)
	}
	n := uint64(order.Uint32(b[12:])) + 1
	if n > t.High-id || n*uint64(t.PageSize) > MaxRun {
		return nil, Corrupt("page %d has %d pages more", id, n-1)
	}
	if err := t.visit(id, n); err != nil {
		return nil, err
	}
	if n == 1 {
		return b, nil
	}
	if total := int(n) * t.PageSize; cap(b) < total {
		grown := make([]byte, total)
		copy(grown, b)
		t.buffers[depth], b = grown, grown
	} else {
		b = b[:total]
	}
	return b, t.fill(b[t.PageSize:], id+1)
}

func (t *Tree) fill(b []byte, id uint64) error {
	if _, err := t.r.ReadAt(b, int64(id)*int64(t.PageSize)); errors.Is(err, io.EOF) {
		return Corrupt("the file ends within page %d", id)
	} else if err != nil {
		return fmt.Errorf("read page %d: %w", id, err)
	}
	return nil
}

// span is a range of keys: from, inclusive, to, exclusive; nil is unbounded.
type span struct{ from, to []byte }

func (s span) has(key []byte) bool {
	return bytes.Compare(key, s.from) >= 0 && (s.to == nil || bytes.Compare(key, s.to) < 0)
}

// meets says whether keys of both ranges can be the same.
func (s span) meets(o span) bool {
	return (s.to == nil || bytes.Compare(o.from, s.to) < 0) && (o.to == nil || bytes.Compare(s.from, o.to) < 0)
}

// Visitor is told a key and its value, which hold until it returns; nested says that the value is a bucket.
type Visitor func(key, value []byte, nested bool) error

// Walk tells what is in a bucket, in the order of the keys.
func (t *Tree) Walk(b Bucket, tell Visitor) error { return t.within(b, span{}, tell) }

// within tells what is in a range of a bucket.
func (t *Tree) within(b Bucket, within span, tell Visitor) error {
	if b.root == 0 {
		return leaf(b.inline, span{}, within, tell)
	}
	return t.walkPage(b.root, 0, span{}, within, tell)
}

func (t *Tree) walkPage(id uint64, depth int, bounds, within span, tell Visitor) error {
	page, err := t.read(id, depth)
	if err != nil {
		return err
	}
	switch flags := order.Uint16(page[8:]); flags {
	case leafPage:
		if err := leaf(page, bounds, within, tell); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		return nil
	case branchPage:
		return t.branch(page, depth, bounds, within, tell)
	default:
		return Corrupt("page %d is of type %#x", id, flags)
	}
}

func (t *Tree) branch(page []byte, depth int, bounds, within span, tell Visitor) error {
	id, count := order.Uint64(page), int(order.Uint16(page[10:]))
	if count == 0 || pageHeader+count*elementSize > len(page) {
		return Corrupt("page %d has %d branches", id, count)
	}
	key, err := branchKey(page, 0, count)
	if err != nil {
		return err
	}
	if bytes.Compare(key, bounds.from) < 0 {
		return Corrupt("page %d has keys out of bounds", id)
	}
	for i := range count {
		below := span{key, bounds.to}
		if i+1 < count {
			if below.to, err = branchKey(page, i+1, count); err != nil {
				return err
			}
		}
		if below.to != nil && bytes.Compare(key, below.to) >= 0 {
			return Corrupt("page %d has keys out of order", id)
		}
		if below.meets(within) {
			child := order.Uint64(page[pageHeader+i*elementSize+8:])
			if err := t.walkPage(child, depth+1, below, within, tell); err != nil {
				return err
			}
		}
		key = below.to
	}
	return nil
}

func branchKey(page []byte, i, count int) ([]byte, error) {
	at := pageHeader + i*elementSize
	start := uint64(at) + uint64(order.Uint32(page[at:]))
	end := start + uint64(order.Uint32(page[at+4:]))
	if start < uint64(pageHeader+count*elementSize) || end > uint64(len(page)) || start == end {
		return nil, Corrupt("page %d: branch %d is out of bounds", order.Uint64(page), i)
	}
	return page[start:end:end], nil
}

func leaf(page []byte, bounds, within span, tell Visitor) error {
	if len(page) < pageHeader || order.Uint16(page[8:]) != leafPage {
		return Corrupt("no leaf")
	}
	count := int(order.Uint16(page[10:]))
	if pageHeader+count*elementSize > len(page) {
		return Corrupt("%d entries", count)
	}
	var last []byte
	total := uint64(pageHeader + count*elementSize)
	for i := range count {
		at := pageHeader + i*elementSize
		flags := order.Uint32(page[at:])
		start := uint64(at) + uint64(order.Uint32(page[at+4:]))
		middle := start + uint64(order.Uint32(page[at+8:]))
		end := middle + uint64(order.Uint32(page[at+12:]))
		// Entries that overlap would make the work more than the bytes.
		total += end - start
		if flags > 1 || start < uint64(pageHeader+count*elementSize) || start == middle ||
			end > uint64(len(page)) || total > uint64(len(page)) {
			return Corrupt("entry %d is out of bounds", i)
		}
		key := page[start:middle:middle]
		if !bounds.has(key) || i > 0 && bytes.Compare(last, key) >= 0 {
			return Corrupt("entry %d is out of order", i)
		}
		last = key
		if within.has(key) {
			if err := tell(key, page[middle:end:end], flags == 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Exists is false for the zero Bucket.
func (b Bucket) Exists() bool { return b.root != 0 || b.inline != nil }

// Buckets returns the buckets of the root. What can be told of them is told with an error, too.
func (t *Tree) Buckets() (map[string]Bucket, error) {
	found := map[string]Bucket{}
	err := t.Walk(Bucket{root: t.root}, func(key, value []byte, nested bool) error {
		if !nested {
			return Corrupt("%q is no bucket", key)
		}
		b, err := bucketOf(key, bytes.Clone(value))
		if err == nil {
			found[string(key)] = b
		}
		return err
	})
	return found, err
}

// bucketOf makes a Bucket of what the root has under a key.
func bucketOf(key, value []byte) (b Bucket, err error) {
	if len(value) < bucketSize {
		return b, Corrupt("%q is no bucket", key)
	}
	if b.root = order.Uint64(value); b.root == 0 {
		b.inline = value[bucketSize:]
	}
	return b, nil
}

// Bucket finds one bucket of the root, which must be there.
func (t *Tree) Bucket(name []byte) (Bucket, error) {
	value, err := t.get(Bucket{root: t.root}, name, true)
	if err != nil {
		return Bucket{}, err
	}
	return bucketOf(name, value)
}

// Get returns a copy of a value, which must be there.
func (t *Tree) Get(b Bucket, key []byte) ([]byte, error) { return t.get(b, key, false) }

// get finds what is under a key: a bucket if nested, else a value.
func (t *Tree) get(b Bucket, key []byte, nested bool) (value []byte, err error) {
	err = t.within(b, span{key, append(bytes.Clone(key), 0)}, func(_, v []byte, n bool) error {
		if n != nested {
			return Corrupt("%q is of another kind", key)
		}
		value = append([]byte{}, v...)
		return nil
	})
	if err == nil && value == nil {
		err = Corrupt("%q is missing", key)
	}
	return value, err
}

// CheckFree verifies the list of free pages, after all others have been visited: a page in it that is in use would be
// written over. It returns their number.
func (t *Tree) CheckFree() (int, error) {
	page, err := t.read(t.freelist, 0)
	if err != nil {
		return 0, err
	}
	if order.Uint16(page[8:]) != freelistPage {
		return 0, Corrupt("page %d is no list of free pages", t.freelist)
	}
	count, at := uint64(order.Uint16(page[10:])), pageHeader
	if count == 0xFFFF {
		count, at = order.Uint64(page[at:]), at+8
	}
	if count > uint64(len(page)-at)/8 {
		return 0, Corrupt("the list of free pages has %d in %d bytes", count, len(page))
	}
	for i := range int(count) {
		id := order.Uint64(page[at+8*i:])
		if id < 2 || id >= t.High {
			return 0, Corrupt("the free page %d of %d", id, t.High)
		}
		if err := t.visit(id, 1); err != nil {
			return 0, fmt.Errorf("free: %w", err)
		}
	}
	return int(count), nil
}
