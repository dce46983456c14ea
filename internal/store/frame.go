package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// A frame is the magic, the length of its head (2 bytes), the checksum of its offset and its head (8 bytes), the head, and the
// body.
const (
	magic      = "\xf5yl4" // its last byte is the version of the format
	fixedBytes = len(magic) + 2 + 8
)

// What a frame does.
const (
	begins  = iota // the state of its key begins anew: what the log has of it so far counts no more
	goesOn         // it adds to the state of which the frame at prev is the last
	removes        // its key has no state
	commits        // its batch is complete
	damaged        // in no file: a frame of which only the head is right
	hole           // in no file: bytes that are no frame
)

// How a body is kept. What is small, or does not get smaller, is kept as it is. What is secret is encrypted then.
const (
	packed = 1 << iota
	encrypted
)

const (
	maxKey     = 4 << 10
	maxBody    = 40 << 20  // more than the largest object that streams allow
	packFrom   = 512       // bytes
	frameBytes = 256 << 10 // of objects: a frame gets no more of them
)

// frame is a frame's head, and where it is.
type frame struct {
	key     key
	typ     stream.Type
	moment  edge.Moment
	before  edge.Revision // stream.Snapshot.Before
	seconds uint64        // of the file's clock: when the key was read last, or, of one that commits, when it was written
	kind    uint64
	form    uint64
	batch   uint64
	prev    uint64 // where the frame before it of the same key is
	body    uint64 // bytes
	size    uint64 // of the body when it is unpacked
	sum     uint64 // of the body

	at      int64
	bytes   int
	foreign bool // it is encrypted with another key
}

func (f *frame) numbers() []*uint64 {
	return []*uint64{
		(*uint64)(&f.moment.Revision), (*uint64)(&f.before), &f.seconds, &f.kind, &f.form, &f.batch, &f.prev, &f.body, &f.size,
		&f.sum,
	}
}

func (f *frame) strings() []*string {
	return []*string{
		&f.key.blob, &f.key.Client, &f.key.Resource.Group, &f.key.Resource.Version, &f.key.Resource.Resource,
		&f.key.Namespace, &f.key.Fields, &f.key.Labels, &f.typ.Group, &f.typ.Version, &f.typ.Kind,
	}
}

func (f *frame) encode() []byte {
	b := append(make([]byte, 0, 256), byte(f.typ.Encoding))
	b = binary.AppendUvarint(b, uint64(f.moment.History))
	for _, n := range f.numbers() {
		b = binary.AppendUvarint(b, *n)
	}
	for _, s := range f.strings() {
		b = appendString(b, *s)
	}
	return b
}

// decode reports whether b is a head.
func (f *frame) decode(b []byte) bool {
	d := decoder{rest: b}
	f.typ.Encoding, f.moment.History = stream.Encoding(d.number(math.MaxUint8)), edge.History(d.number(math.MaxInt64))
	for _, n := range f.numbers() {
		*n = d.number(math.MaxUint64)
	}
	for _, s := range f.strings() {
		*s = string(d.bytes())
	}
	return !d.bad && len(d.rest) == 0 && f.kind <= commits && f.body <= maxBody && f.size <= maxBody
}

// place returns what a body's encryption is bound to, so that the body can be read in no other place.
func (f frame) place() []byte {
	f.form, f.batch, f.prev, f.body, f.size, f.sum = 0, 0, 0, 0, 0, 0
	return f.encode()
}

// headSum is the checksum of a head at an offset.
func headSum(at int64, head []byte) uint64 {
	return xxhash.Sum64(append(binary.BigEndian.AppendUint64(nil, uint64(at)), head...))
}

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder takes numbers and strings from bytes, until bad says that there were not enough.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) number(most uint64) uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > most {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) bytes() []byte {
	n := d.number(uint64(len(d.rest)))
	if n > uint64(len(d.rest)) {
		d.bad, n = true, 0
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// appendChange appends an object, or its deletion, to a body.
func appendChange(b []byte, c change) []byte {
	deleted := byte(0)
	if c.deleted {
		deleted = 1
	}
	b = appendString(append(b, deleted), c.object.Key.Namespace)
	b = appendString(b, c.object.Key.Name)
	return appendString(binary.AppendUvarint(b, uint64(c.object.Revision)), c.object.Raw)
}

// change takes what appendChange has appended.
func (d *decoder) change() (c change) {
	c.deleted = d.number(1) == 1
	c.object.Key = stream.Key{Namespace: string(d.bytes()), Name: string(d.bytes())}
	c.object.Revision, c.object.Raw = edge.Revision(d.number(math.MaxUint64)), d.bytes()
	return c
}

// reader reads frames, ahead bytes of the file or more at a time. It is used by one goroutine at a time.
type reader struct {
	file  io.ReaderAt
	size  int64 // of the file
	ahead int
	vault *vault

	at     int64
	held   []byte // what the file has there
	failed error  // why some of it could not be read
	buffer []byte
}

// read returns n bytes at an offset, which are valid until the next call. nil means that they are not there, or can't be read.
func (r *reader) read(at int64, n int) []byte {
	if at > r.size-int64(n) {
		return nil
	}
	if at < r.at || at+int64(n) > r.at+int64(len(r.held)) {
		want := int(min(int64(max(n, r.ahead)), r.size-at))
		r.held = slices.Grow(r.held[:0], want)[:want]
		got, err := r.file.ReadAt(r.held, at)
		if err != nil && !errors.Is(err, io.EOF) {
			r.failed = err
		}
		if r.at, r.held = at, r.held[:got]; got < n {
			return nil
		}
	}
	return r.held[at-r.at:][:n]
}

// seek returns the next offset at which a frame may begin; the file's size if there is none.
func (r *reader) seek(at int64) int64 {
	for at < r.size {
		b := r.read(at, int(min(int64(r.ahead), r.size-at)))
		if b == nil {
			const sector = 4096
			at += sector - at%sector
		} else if i := bytes.Index(b, []byte(magic)); i >= 0 {
			return at + int64(i)
		} else {
			at += int64(max(1, len(b)-len(magic)+1))
		}
	}
	return r.size
}

// frame reads the frame at an offset. ok is false if there is no frame. If only the body is bad, f.kind is damaged. The body is
// as it is in the file, and is valid until the next call.
func (r *reader) frame(at int64) (f frame, body []byte, ok bool) {
	b := r.read(at, fixedBytes)
	if b == nil || string(b[:len(magic)]) != magic {
		return f, nil, false
	}
	n := fixedBytes + int(binary.BigEndian.Uint16(b[len(magic):]))
	if b = r.read(at, n); b == nil || binary.BigEndian.Uint64(b[fixedBytes-8:]) != headSum(at, b[fixedBytes:]) {
		return f, nil, false
	}
	if !f.decode(b[fixedBytes:]) {
		return f, nil, false
	}
	f.at, f.bytes = at, n+int(f.body)
	if b = r.read(at, f.bytes); b == nil || xxhash.Sum64(b[n:]) != f.sum {
		f.kind = damaged
		return f, nil, true
	}
	return f, b[n:], true
}

// body returns the content of a frame, decrypted and unpacked. It is valid until the next call.
func (r *reader) body(k key, at span) ([]byte, error) {
	r.read(at.at, at.bytes) // all of it at once
	f, body, ok := r.frame(at.at)
	if !ok || f.kind == damaged || f.key != k {
		return nil, fmt.Errorf("it is corrupt: %d bytes at %#x have a wrong checksum", at.bytes, at.at)
	}
	if f.form&encrypted != 0 {
		var err error
		if body, err = r.vault.open(body, f.place()); err != nil {
			return nil, err
		}
	}
	if f.form&packed == 0 {
		return body, nil
	}
	if n, err := s2.DecodedLen(body); err != nil || n != int(f.size) {
		return nil, fmt.Errorf("it is corrupt: %d packed bytes at %#x", len(body), at.at)
	}
	r.buffer = slices.Grow(r.buffer[:0], int(f.size))[:f.size]
	return s2.Decode(r.buffer, body)
}

// changes calls tell for every change of which a state consists, in the order of writing. A change is valid until tell returns.
func (r *reader) changes(s *state, tell func(change)) error {
	for _, at := range s.frames {
		body, err := r.body(s.last.key, at)
		if err != nil {
			return err
		}
		for d := (decoder{rest: body}); len(d.rest) > 0; {
			c := d.change()
			if d.bad {
				return fmt.Errorf("it is corrupt: no objects at %#x", at.at)
			}
			tell(c)
		}
	}
	return nil
}

// objects calls the function tell once for each object of a state. The object is valid until tell returns. objects reads the
// state twice, so that memory never holds an object that a later change replaces.
func (r *reader) objects(s *state, tell func(stream.Object)) error {
	n, last := 0, map[stream.Key]int{}
	if err := r.changes(s, func(c change) { n++; last[c.object.Key] = n }); err != nil {
		return err
	}
	n = 0
	return r.changes(s, func(c change) {
		if n++; last[c.object.Key] == n && !c.deleted {
			tell(c.object)
		}
	})
}
