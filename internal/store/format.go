package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/store/pages"
	"yurtcoordinator/internal/stream"
)

// formatVersion is that of everything below. Another one is moved aside: there is a cloud to read it from again.
const formatVersion = 3

// Buckets, and keys of the first.
const (
	bucketFormat      = "format"
	bucketCollections = "collections" // number → header
	bucketBlobs       = "blobs"       // key → sum, value
	bucketObjects     = "objects/"    // and a collection's number: namespace 0 name → sum, revision, form, bytes

	keyFormat = "version" // sum, version
	keyBlobs  = "blobs"   // sum, tally of all blobs
	keyAsked  = "asked"   // sum, seconds of the clock that collections' times are of
)

// Bounds of what is stored.
const (
	maxKey     = 4 << 10
	maxBlobKey = 1 << 10
	maxBlob    = 1 << 20
	maxBlobs   = 16 << 20
)

// What a checksum is of, so that none is taken for another.
const (
	ofObject byte = iota + 1
	ofHeader
	ofBlob
	ofFormat
	ofBlobs
	ofAsked
	ofClosedBlob
)

// sum is the checksum of a value: of what it is, where it belongs, and its content.
func sum(of byte, number uint64, key []byte, content ...[]byte) uint64 {
	var prefix [13]byte
	prefix[0] = of
	binary.BigEndian.PutUint64(prefix[1:], number)
	binary.BigEndian.PutUint32(prefix[9:], uint32(len(key)))
	var d xxhash.Digest
	d.Reset()
	// Writing to a hash never fails.
	_, _ = d.Write(prefix[:])
	_, _ = d.Write(key)
	for _, c := range content {
		_, _ = d.Write(c)
	}
	return d.Sum64()
}

// sealHead is how many bytes a checksum takes in front of what it is of.
const sealHead = 8

// seal puts the checksum before the content.
func seal(of byte, number uint64, key, content []byte) []byte {
	b := make([]byte, 0, sealHead+len(content))
	b = binary.BigEndian.AppendUint64(b, sum(of, number, key, content))
	return append(b, content...)
}

// unseal verifies a value.
func unseal(of byte, number uint64, key, value []byte) (content []byte, err error) {
	if len(value) < sealHead {
		return nil, pages.Corrupt("%q has no checksum", key)
	}
	if binary.BigEndian.Uint64(value) != sum(of, number, key, value[sealHead:]) {
		return nil, pages.Corrupt("%q has a wrong checksum", key)
	}
	return value[sealHead:], nil
}

// tally is what a set of values adds up to, in any order: one that is lost, doubled or exchanged shows.
type tally struct {
	count, bytes, digest uint64
}

// put adds a value, of which head bytes are not counted: its checksum and what else stands before the content.
func (t *tally) put(value []byte, head int) {
	t.count, t.bytes, t.digest = t.count+1, t.bytes+uint64(len(value)-head), t.digest+binary.BigEndian.Uint64(value)
}

// take removes a value again.
func (t *tally) take(key, value []byte, head int) error {
	if len(value) < head {
		return pages.Corrupt("%q has no checksum", key)
	}
	t.count, t.bytes, t.digest = t.count-1, t.bytes-uint64(len(value)-head), t.digest-binary.BigEndian.Uint64(value)
	return nil
}

func (t tally) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, t.count)
	b = binary.BigEndian.AppendUint64(b, t.bytes)
	return binary.BigEndian.AppendUint64(b, t.digest)
}

func (t *tally) decode(b []byte) bool {
	if len(b) != 24 {
		return false
	}
	t.count, t.bytes, t.digest = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	return true
}

// numberKey is a collection's key among headers.
func numberKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// objectsOf is the name of a collection's bucket.
func objectsOf(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(bucketObjects), number)
}

// objectKey orders as stream.Key.Compare does.
func objectKey(k stream.Key) ([]byte, error) {
	if k.Name == "" || strings.IndexByte(k.Namespace, 0) >= 0 || strings.IndexByte(k.Name, 0) >= 0 {
		return nil, fmt.Errorf("store: %q is no object's name", k.String())
	}
	if len(k.Namespace)+len(k.Name) >= maxKey {
		return nil, fmt.Errorf("store: a name of %d bytes, want less than %d", len(k.Namespace)+len(k.Name), maxKey)
	}
	b := make([]byte, 0, len(k.Namespace)+1+len(k.Name))
	b = append(b, k.Namespace...)
	b = append(b, 0)
	return append(b, k.Name...), nil
}

func parseObjectKey(b []byte) (stream.Key, error) {
	namespace, name, ok := strings.Cut(string(b), "\x00")
	if !ok || name == "" || strings.IndexByte(name, 0) >= 0 {
		return stream.Key{}, pages.Corrupt("the object key %q", b)
	}
	return stream.Key{Namespace: namespace, Name: name}, nil
}

// How an object's bytes are kept. What is small, or does not get smaller, is kept as it is. What is secret is encrypted then, and
// its form has that bit, too.
const (
	plain byte = iota
	packed
	encrypted
)

// An object's value is its checksum, its revision, how its bytes are kept, and the bytes.
const (
	revisionAt = 8
	formAt     = 16
	valueHead  = 17

	packFrom  = 512          // bytes
	maxObject = pages.MaxRun // unpacked
)

// coder packs and unpacks, encrypts and decrypts. It is used by one goroutine at a time.
type coder struct {
	vault  *vault
	buffer []byte
}

func (c *coder) room(n int) []byte {
	if cap(c.buffer) < n {
		c.buffer = make([]byte, n)
	}
	return c.buffer[:n]
}

// encode makes an object's value, encrypted if it is secret. An API object of some KB is packed to a fraction, for less than it
// costs to write the rest of it.
func (c *coder) encode(number uint64, key []byte, o stream.Object, secret bool) []byte {
	form, body := plain, o.Raw
	if len(o.Raw) >= packFrom {
		if b := s2.Encode(c.room(s2.MaxEncodedLen(len(o.Raw))), o.Raw); len(b) <= len(o.Raw)*3/4 {
			form, body = packed, b
		}
	}
	value := append(make([]byte, valueHead, valueHead+len(body)), body...)
	value[formAt] = form
	binary.BigEndian.PutUint64(value[revisionAt:], uint64(o.Revision))
	if secret {
		value = c.vault.closeObject(number, key, value)
	}
	binary.BigEndian.PutUint64(value, sum(ofObject, number, key, value[revisionAt:]))
	return value
}

// decode verifies an object, and then decrypts and unpacks it. Its Raw is within value or the coder, and holds until either
// changes.
func (c *coder) decode(number uint64, key, value []byte) (o stream.Object, err error) {
	if _, err := unseal(ofObject, number, key, value); err != nil {
		return o, err
	}
	if len(value) < valueHead || value[formAt] > packed|encrypted {
		return o, pages.Corrupt("%q has no revision, or another form", key)
	}
	if o.Key, err = parseObjectKey(key); err != nil {
		return o, err
	}
	o.Revision = edge.Revision(binary.BigEndian.Uint64(value[revisionAt:]))
	if o.Raw, err = c.vault.openObject(number, key, value); err != nil {
		return o, err
	}
	if value[formAt]&packed == 0 {
		return o, nil
	}
	n, err := s2.DecodedLen(o.Raw)
	if err != nil || n > maxObject {
		return o, pages.Corrupt("%q is packed, of %d bytes: %v", key, n, err)
	}
	if o.Raw, err = s2.Decode(c.room(n), o.Raw); err != nil {
		return o, pages.Corrupt("%q is packed: %v", key, err)
	}
	return o, nil
}

// header is what is known of a collection as a whole.
type header struct {
	id       Collection
	typ      stream.Type
	at       edge.Moment
	before   edge.Revision // stream.Snapshot.Before
	objects  tally
	read     time.Duration // by the file's clock, to the second
	complete bool          // false while it is being written in several transactions
}

// strings are the header's, in their order on disk.
func (h *header) strings() []*string {
	return []*string{
		&h.id.Client, &h.id.Resource.Group, &h.id.Resource.Version, &h.id.Resource.Resource,
		&h.id.Namespace, &h.id.Fields, &h.id.Labels, &h.typ.Group, &h.typ.Version, &h.typ.Kind,
	}
}

func (h header) encode(number uint64) []byte {
	b := []byte{0, byte(h.typ.Encoding)}
	if h.complete {
		b[0] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(h.at.Revision))
	b = h.objects.append(b)
	b = binary.BigEndian.AppendUint64(b, uint64(h.read/time.Second))
	b = binary.BigEndian.AppendUint64(b, uint64(h.at.History))
	b = binary.BigEndian.AppendUint64(b, uint64(h.before))
	for _, s := range h.strings() {
		b = binary.BigEndian.AppendUint16(b, uint16(len(*s)))
		b = append(b, *s...)
	}
	return seal(ofHeader, number, nil, b)
}

// headerFixed is how many bytes of a header stand before its strings.
const headerFixed = 2 + 8 + 24 + 3*8

func decodeHeader(number uint64, value []byte) (h header, err error) {
	b, err := unseal(ofHeader, number, nil, value)
	if err != nil {
		return h, fmt.Errorf("header: %w", err)
	}
	if len(b) < headerFixed || b[0] > 1 || !h.objects.decode(b[10:34]) {
		return h, pages.Corrupt("a header of %d bytes", len(b))
	}
	h.complete, h.typ.Encoding = b[0] == 1, stream.Encoding(b[1])
	h.at.Revision = edge.Revision(binary.BigEndian.Uint64(b[2:]))
	read, ok := seconds(b[34:])
	h.read = read
	h.at.History = edge.History(binary.BigEndian.Uint64(b[42:]))
	h.before = edge.Revision(binary.BigEndian.Uint64(b[50:]))
	b = b[headerFixed:]
	for _, s := range h.strings() {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return h, pages.Corrupt("a header is cut short")
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		*s, b = string(b[2:n]), b[n:]
	}
	if len(b) != 0 || !ok || h.complete && h.at.Revision == 0 {
		return h, pages.Corrupt("a header that does not make sense")
	}
	return h, nil
}

// seconds reads a time of the clock; false if it is out of all bounds.
func seconds(b []byte) (time.Duration, bool) {
	n := binary.BigEndian.Uint64(b)
	return time.Duration(n) * time.Second, n <= math.MaxInt64/uint64(time.Second)
}

// check says whether a collection can be stored.
func (id Collection) check() error {
	h := header{id: id}
	total := 0
	for _, s := range h.strings() {
		total += len(*s)
	}
	if total > maxKey || id.Resource.Resource == "" || id.Resource.Version == "" {
		return fmt.Errorf("store: collection %s: want a version, a resource and at most %d bytes", id, maxKey)
	}
	return nil
}
