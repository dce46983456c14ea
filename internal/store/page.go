package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// errCorrupt says that bytes are not what was written. What wraps it says where.
var errCorrupt = errors.New("corrupt")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errCorrupt, fmt.Sprintf(format, args...))
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
	// maxRun bounds the bytes of one page with its overflow: three objects of the largest size that streams allow.
	maxRun = 32 << 20
	// maxDepth of a tree: bbolt's have 2 children at least, ours are of depth 4.
	maxDepth = 24
)

var order = binary.NativeEndian

// tree reads one committed state of a bbolt file, page by page, and believes nothing: what it reads is bounded by the
// file's size, and every page is checked before it is followed. bbolt itself follows a wild page through its memory map,
// into a fault or for ever. Used by one goroutine.
type tree struct {
	r        io.ReaderAt
	pageSize int
	txid     uint64
	root     uint64
	freelist uint64
	high     uint64   // pages in use or free are below
	seen     []uint64 // one bit for a page, when all are visited; else nil
	buffers  [][]byte // one for each level
}

// bucket is where a bucket of bbolt has its pages.
type bucket struct {
	root   uint64
	inline []byte // its only page, if root is 0
}

// readTree finds the latest committed state.
func readTree(r io.ReaderAt, size int64) (*tree, error) {
	first, err := readMeta(r, 0)
	var second *tree
	if first != nil {
		second, _ = readMeta(r, int64(first.pageSize)) // torn by a crash, or the only one left: either is enough
	} else {
		for at := int64(minPageSize); at <= maxPageSize && second == nil; at *= 2 {
			if t, e := readMeta(r, at); e == nil && int64(t.pageSize) == at {
				second = t
			}
		}
	}
	latest := first
	if latest == nil || second != nil && second.pageSize == first.pageSize && second.txid > first.txid {
		latest = second
	}
	if latest == nil {
		return nil, fmt.Errorf("neither of the file's heads can be read: %w", err)
	}
	if latest.high > uint64(size)/uint64(latest.pageSize) {
		return nil, corrupt("the file is cut short: %d bytes, %d pages of %d are in it", size, latest.high, latest.pageSize)
	}
	return latest, nil
}

func readMeta(r io.ReaderAt, at int64) (*tree, error) {
	var b [pageHeader + metaSize]byte
	if _, err := r.ReadAt(b[:], at); errors.Is(err, io.EOF) {
		return nil, corrupt("no head at %d", at)
	} else if err != nil {
		return nil, fmt.Errorf("read a head at %d: %w", at, err)
	}
	m := b[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(m[:metaSize-8]) // it never fails
	t := &tree{
		r: r, pageSize: int(order.Uint32(m[8:])), root: order.Uint64(m[16:]), freelist: order.Uint64(m[32:]),
		high: order.Uint64(m[40:]), txid: order.Uint64(m[48:]),
	}
	switch {
	case order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion:
		return nil, corrupt("no file of bbolt's version %d", boltVersion)
	case order.Uint64(m[metaSize-8:]) != sum.Sum64():
		return nil, corrupt("the head at %d has a wrong checksum", at)
	case t.pageSize < minPageSize || t.pageSize > maxPageSize || t.pageSize&(t.pageSize-1) != 0:
		return nil, corrupt("pages of %d bytes", t.pageSize)
	}
	return t, nil
}

// visit marks pages; each may be visited once when all are.
func (t *tree) visit(id, n uint64) error {
	if t.seen == nil {
		return nil
	}
	for i := id; i < id+n; i++ {
		if t.seen[i/64]&(1<<(i%64)) != 0 {
			return corrupt("page %d is used twice", i)
		}
		t.seen[i/64] |= 1 << (i % 64)
	}
	return nil
}

// read returns a page with its overflow, valid until the next read at that depth.
func (t *tree) read(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= t.high {
		return nil, corrupt("page %d of %d", id, t.high)
	}
	if depth > maxDepth {
		return nil, corrupt("the tree is too deep at page %d", id)
	}
	for len(t.buffers) <= depth {
		t.buffers = append(t.buffers, make([]byte, t.pageSize))
	}
	b := t.buffers[depth][:t.pageSize]
	if err := t.fill(b, id); err != nil {
		return nil, err
	}
	if got := order.Uint64(b); got != id {
		return nil, corrupt("page %d says it is %d", id, got)
	}
	n := uint64(order.Uint32(b[12:])) + 1
	if n > t.high-id || n*uint64(t.pageSize) > maxRun {
		return nil, corrupt("page %d has %d pages more", id, n-1)
	}
	if err := t.visit(id, n); err != nil {
		return nil, err
	}
	if n == 1 {
		return b, nil
	}
	if total := int(n) * t.pageSize; cap(b) < total {
		grown := make([]byte, total)
		copy(grown, b)
		t.buffers[depth], b = grown, grown
	} else {
		b = b[:total]
	}
	return b, t.fill(b[t.pageSize:], id+1)
}

func (t *tree) fill(b []byte, id uint64) error {
	if _, err := t.r.ReadAt(b, int64(id)*int64(t.pageSize)); errors.Is(err, io.EOF) {
		return corrupt("the file ends within page %d", id)
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

// visitor is told a key and its value, which hold until it returns; nested says that the value is a bucket.
type visitor func(key, value []byte, nested bool) error

// walk tells what is in a bucket within a range, in the order of the keys.
func (t *tree) walk(b bucket, within span, tell visitor) error {
	if b.root == 0 {
		return leaf(b.inline, span{}, within, tell)
	}
	return t.walkPage(b.root, 0, span{}, within, tell)
}

func (t *tree) walkPage(id uint64, depth int, bounds, within span, tell visitor) error {
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
		return corrupt("page %d is of type %#x", id, flags)
	}
}

func (t *tree) branch(page []byte, depth int, bounds, within span, tell visitor) error {
	id, count := order.Uint64(page), int(order.Uint16(page[10:]))
	if count == 0 || pageHeader+count*elementSize > len(page) {
		return corrupt("page %d has %d branches", id, count)
	}
	key, err := branchKey(page, 0, count)
	if err != nil {
		return err
	}
	if bytes.Compare(key, bounds.from) < 0 {
		return corrupt("page %d has keys out of bounds", id)
	}
	for i := range count {
		below := span{key, bounds.to}
		if i+1 < count {
			if below.to, err = branchKey(page, i+1, count); err != nil {
				return err
			}
		}
		if below.to != nil && bytes.Compare(key, below.to) >= 0 {
			return corrupt("page %d has keys out of order", id)
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
		return nil, corrupt("page %d: branch %d is out of bounds", order.Uint64(page), i)
	}
	return page[start:end:end], nil
}

func leaf(page []byte, bounds, within span, tell visitor) error {
	if len(page) < pageHeader || order.Uint16(page[8:]) != leafPage {
		return corrupt("no leaf")
	}
	count := int(order.Uint16(page[10:]))
	if pageHeader+count*elementSize > len(page) {
		return corrupt("%d entries", count)
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
			return corrupt("entry %d is out of bounds", i)
		}
		key := page[start:middle:middle]
		if !bounds.has(key) || i > 0 && bytes.Compare(last, key) >= 0 {
			return corrupt("entry %d is out of order", i)
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

// buckets returns the buckets of the root. What can be told of them is told with an error, too.
func (t *tree) buckets() (map[string]bucket, error) {
	found := map[string]bucket{}
	err := t.walk(bucket{root: t.root}, span{}, func(key, value []byte, nested bool) error {
		if !nested || len(value) < bucketSize {
			return corrupt("%q is no bucket", key)
		}
		b := bucket{root: order.Uint64(value)}
		if b.root == 0 {
			b.inline = bytes.Clone(value[bucketSize:])
		}
		found[string(key)] = b
		return nil
	})
	return found, err
}

// bucket finds one bucket of the root.
func (t *tree) bucket(name []byte) (bucket, bool, error) {
	var b bucket
	value, ok, err := t.get(bucket{root: t.root}, name, true)
	if err != nil || !ok {
		return b, false, err
	}
	if len(value) < bucketSize {
		return b, false, corrupt("%q is no bucket", name)
	}
	if b.root = order.Uint64(value); b.root == 0 {
		b.inline = value[bucketSize:]
	}
	return b, true, nil
}

// get finds one value and returns a copy.
func (t *tree) get(b bucket, key []byte, nested bool) (value []byte, ok bool, err error) {
	only := span{key, append(bytes.Clone(key), 0)}
	err = t.walk(b, only, func(_, v []byte, n bool) error {
		if n != nested {
			return corrupt("%q is of another kind", key)
		}
		value, ok = bytes.Clone(v), true
		return nil
	})
	return value, ok, err
}

// checkFree verifies the list of free pages, after all others have been visited: a page in it that is in use would be
// written over. It returns their number.
func (t *tree) checkFree() (int, error) {
	page, err := t.read(t.freelist, 0)
	if err != nil {
		return 0, err
	}
	if order.Uint16(page[8:]) != freelistPage {
		return 0, corrupt("page %d is no list of free pages", t.freelist)
	}
	count, at := uint64(order.Uint16(page[10:])), pageHeader
	if count == 0xFFFF {
		count, at = order.Uint64(page[at:]), at+8
	}
	if count > uint64(len(page)-at)/8 {
		return 0, corrupt("the list of free pages has %d in %d bytes", count, len(page))
	}
	for i := range int(count) {
		id := order.Uint64(page[at+8*i:])
		if id < 2 || id >= t.high {
			return 0, corrupt("the free page %d of %d", id, t.high)
		}
		if err := t.visit(id, 1); err != nil {
			return 0, fmt.Errorf("free: %w", err)
		}
	}
	return int(count), nil
}
