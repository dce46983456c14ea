package stream

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream/edit"
)

// trusted is the largest claimed length for which memory is allocated at once. For a larger one, memory grows as the bytes
// arrive.
const trusted = 1 << 20

// ObjectBytes is what an object of a list takes in memory, besides its Raw: a Key, a Revision, and a replica's place for it.
const ObjectBytes = 256

// ErrTooLarge says that a list is larger than its reader allows.
var ErrTooLarge = errors.New("the list is too large")

// ReadList reads a list as an API server answers it. A list of more than maxBytes is ErrTooLarge, where each object counts as
// ObjectBytes more than its own. cont is the continue token, empty for the last part. Each object is an allocation of its own,
// so that each can be freed alone. The objects are sorted by Key.Compare, whatever their order in the list. Servers over etcd
// sort "a-b/x" before "a/x".
//
// ReadList refuses a list that is cut anywhere, has no revision, has one key twice, or has an object that is newer than the list.
// The reason is that every object that a list lacks counts as deleted.
func ReadList(r io.Reader, e Encoding, maxBytes int64) (s Snapshot, cont string, err error) {
	b := &io.LimitedReader{R: r, N: maxBytes + 1}
	each := func() { b.N -= ObjectBytes }
	var meta metav1.ListMeta
	switch e {
	case Protobuf:
		s, meta, err = readProtobufList(&counted{r: bufio.NewReaderSize(b, readAhead)}, maxBytes, each)
	case JSON:
		s, meta, err = readJSONList(b, each)
	default:
		err = errNoEncoding
	}
	if b.N <= 0 { // not that it looks cut
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxBytes)
	}
	if err != nil {
		return Snapshot{}, "", fmt.Errorf("read a list: %w", err)
	}
	if s.Revision, err = edge.ParseRevision(meta.ResourceVersion); err != nil {
		return Snapshot{}, "", fmt.Errorf("read a list: %w", err)
	}
	if err := s.Complete(); err != nil {
		return Snapshot{}, "", err
	}
	for _, o := range s.Objects {
		if own, _ := o.Revision.Own(); own > s.Revision { // an object that a view shows bears a revision of its own
			return Snapshot{}, "", fmt.Errorf("read a list: %s is of revision %s, the list of %s", o.Key, o.Revision, s.Revision)
		}
	}
	return s, meta.Continue, nil
}

// counted knows how many bytes were read.
type counted struct {
	r *bufio.Reader
	n int64
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// field reads a field up to its content. size is -1 for a field that is not length-delimited, which it skips.
func (c *counted) field() (number protowire.Number, size int64, err error) {
	tag, err := binary.ReadUvarint(c)
	if err != nil {
		return 0, 0, err // io.EOF, if nothing was read
	}
	number, wire := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber {
		return 0, 0, fmt.Errorf("malformed message: %w", protowire.ParseError(-1))
	}
	size = -1
	switch wire {
	case protowire.VarintType:
		_, err = binary.ReadUvarint(c)
	case protowire.Fixed32Type:
		err = c.discard(4)
	case protowire.Fixed64Type:
		err = c.discard(8)
	case protowire.BytesType:
		var n uint64
		if n, err = binary.ReadUvarint(c); err == nil && n > 1<<62 {
			err = fmt.Errorf("malformed message: a field of %d bytes", n)
		}
		size = int64(n)
	default:
		err = edit.ErrGroup
	}
	return number, size, unexpected(err)
}

func (c *counted) discard(size int64) error {
	n, err := io.CopyN(io.Discard, c.r, size)
	c.n += n
	return unexpected(err)
}

// bytes reads size bytes into an allocation of just that size.
func (c *counted) bytes(size int64) ([]byte, error) {
	if size > trusted {
		var b bytes.Buffer
		n, err := io.CopyN(&b, c.r, size)
		c.n += n
		return slices.Clip(bytes.Clone(b.Bytes())), unexpected(err)
	}
	b := make([]byte, size)
	n, err := io.ReadFull(c.r, b)
	c.n += int64(n)
	return b, unexpected(err)
}

// unexpected turns io.EOF into io.ErrUnexpectedEOF, for a place where the input may not end.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readProtobufList reads a runtime.Unknown that holds a list. It calls each for each object.
func readProtobufList(c *counted, maxBytes int64, each func()) (s Snapshot, meta metav1.ListMeta, err error) {
	begin, err := c.bytes(int64(len(magic)))
	if err != nil {
		return s, meta, err
	}
	if !bytes.Equal(begin, magic) {
		return s, meta, fmt.Errorf("it begins with %q: want a Protobuf message of Kubernetes", begin)
	}
	var typeMeta []byte
	content := false
	for {
		number, size, err := c.field()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s, meta, err
		}
		switch {
		case size < 0 && number <= edit.UnknownContentType:
			return s, meta, fmt.Errorf("malformed envelope: field %d is not length-delimited", number)
		case size < 0:
		case size > maxBytes-c.n:
			// Checked at once, not after the limit has been read: this also finds a wrong length.
			return s, meta, fmt.Errorf("%w: it claims %d bytes and more than %d are not allowed", ErrTooLarge, size, maxBytes)
		case number == edit.UnknownRaw && content:
			return s, meta, errors.New("malformed envelope: it has two contents")
		case number == edit.UnknownRaw:
			content = true
			if s.Objects, meta, err = readProtobufItems(c, size, each); err != nil {
				return s, meta, err
			}
		case number == edit.UnknownTypeMeta && typeMeta != nil:
			return s, meta, errors.New("malformed envelope: it has two types")
		case number == edit.UnknownTypeMeta:
			if typeMeta, err = c.bytes(size); err != nil {
				return s, meta, err
			}
		case number == edit.UnknownContentEncoding && size > 0:
			return s, meta, errors.New("its content is encoded in a way that is not supported")
		default: // the content type is the Content-Type's
			if err := c.discard(size); err != nil {
				return s, meta, err
			}
		}
	}
	if !content {
		return s, meta, errors.New("malformed envelope: it is empty")
	}
	t, err := readTypeMeta(typeMeta)
	if err != nil {
		return s, meta, err
	}
	s.Type, err = itemType(t)
	return s, meta, err
}

// readProtobufItems reads a list's message.
func readProtobufItems(c *counted, size int64, each func()) (objects []Object, meta metav1.ListMeta, err error) {
	for end := c.n + size; c.n != end; {
		number, size, err := c.field()
		if err != nil {
			return nil, meta, unexpected(err)
		}
		if c.n > end || size > end-c.n {
			return nil, meta, errors.New("malformed list: a field is longer than the list")
		}
		if size < 0 && (number == edit.Metadata || number == edit.Items) {
			return nil, meta, fmt.Errorf("malformed list: field %d is not length-delimited", number)
		}
		if size < 0 {
			continue
		}
		switch number {
		case edit.Metadata:
			raw, err := c.bytes(size)
			if err != nil {
				return nil, meta, err
			}
			if err := meta.Unmarshal(raw); err != nil {
				return nil, meta, fmt.Errorf("malformed list: metadata: %w", err)
			}
		case edit.Items:
			raw, err := c.bytes(size)
			if err != nil {
				return nil, meta, err
			}
			object, err := Scan(Protobuf, raw)
			if err != nil {
				return nil, meta, fmt.Errorf("item %d: %w", len(objects), err)
			}
			objects = append(objects, object)
			each()
		default:
			if err := c.discard(size); err != nil {
				return nil, meta, err
			}
		}
	}
	return objects, meta, nil
}

// readJSONList reads a list token by token.
func readJSONList(r io.Reader, each func()) (s Snapshot, meta metav1.ListMeta, err error) {
	d := json.NewDecoder(r)
	if err := delimiter(d, '{'); err != nil {
		return s, meta, err
	}
	var kind, apiVersion string
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return s, meta, unexpected(err)
		}
		member, ok := token.(string)
		if !ok {
			return s, meta, fmt.Errorf("malformed list: %v where a name should be", token)
		}
		switch member {
		case "kind", "apiVersion", "metadata", "items":
			if seen[member] {
				return s, meta, fmt.Errorf("malformed list: it has two of %s", member)
			}
			seen[member] = true
		}
		switch member {
		case "kind":
			err = d.Decode(&kind)
		case "apiVersion":
			err = d.Decode(&apiVersion)
		case "metadata":
			err = d.Decode(&meta)
		case "items":
			s.Objects, err = readJSONItems(d, each)
		default:
			var ignored json.RawMessage
			err = d.Decode(&ignored)
		}
		if err != nil {
			return s, meta, fmt.Errorf("malformed list: %.40s: %w", member, unexpected(err))
		}
	}
	if err := delimiter(d, '}'); err != nil {
		return s, meta, err
	}
	if token, err := d.Token(); !errors.Is(err, io.EOF) {
		return s, meta, fmt.Errorf("malformed list: more follows it: %v: %w", token, err)
	}
	if !seen["items"] {
		return s, meta, fmt.Errorf("malformed list: a %q without items, which is not the same as none", kind)
	}
	t, err := typeOf(JSON, apiVersion, kind)
	if err != nil {
		return s, meta, err
	}
	s.Type, err = itemType(t)
	return s, meta, err
}

func readJSONItems(d *json.Decoder, each func()) ([]Object, error) {
	token, err := d.Token()
	if err != nil || token == nil { // null: an empty list of some programs
		return nil, err
	}
	if token != json.Delim('[') {
		return nil, fmt.Errorf("want an array, got %v", token)
	}
	var objects []Object
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		object, err := Scan(JSON, raw)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", len(objects), err)
		}
		objects = append(objects, object)
		each()
	}
	return objects, delimiter(d, ']')
}

func delimiter(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err != nil {
		return unexpected(err)
	}
	if token != want {
		return fmt.Errorf("malformed list: want %v, got %v", want, token)
	}
	return nil
}

// itemType is the type of what a list holds.
func itemType(list Type) (Type, error) {
	kind, ok := strings.CutSuffix(list.Kind, "List")
	if !ok || kind == "" {
		return Type{}, fmt.Errorf("want a list, got a %q", list.Kind)
	}
	list.Kind = kind
	return list, nil
}

// WriteList writes a list of objects of type t, as an API server answers it. In Protobuf a list begins with its size, so
// WriteList iterates over the objects twice, and must get the same ones both times. An error from the iterator ends the list.
func WriteList(w io.Writer, t Type, meta metav1.ListMeta, objects iter.Seq2[Object, error]) error {
	if t.Kind == "" || t.Version == "" {
		return errors.New("cannot write a list: the type of the objects is not known")
	}
	t.Kind += "List"
	out := bufio.NewWriterSize(w, readAhead/2)
	var err error
	switch t.Encoding {
	case Protobuf:
		err = writeProtobufList(out, t, meta, objects)
	case JSON:
		err = writeJSONList(out, t, meta, objects)
	default:
		err = errNoEncoding
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("write a list: %w", err)
	}
	return nil
}

// A bufio.Writer keeps its error, so checking one write for each object is enough.

func writeProtobufList(w *bufio.Writer, t Type, meta metav1.ListMeta, objects iter.Seq2[Object, error]) error {
	metadata, err := meta.Marshal()
	if err != nil {
		return err
	}
	size := edit.Size(edit.Metadata, len(metadata))
	for o, err := range objects {
		if err != nil {
			return err
		}
		size += edit.Size(edit.Items, len(o.Raw))
	}
	scratch := appendUnknownHead(nil, t, size)
	_, _ = w.Write(edit.Append(scratch, edit.Metadata, metadata))
	left := size - edit.Size(edit.Metadata, len(metadata))
	for o, err := range objects {
		if err != nil {
			return err
		}
		if left -= edit.Size(edit.Items, len(o.Raw)); left < 0 {
			break
		}
		scratch = edit.AppendHead(scratch[:0], edit.Items, len(o.Raw))
		_, _ = w.Write(scratch)
		if _, err := w.Write(o.Raw); err != nil {
			return err
		}
	}
	if left != 0 {
		return errors.New("the objects changed meanwhile")
	}
	_, err = w.Write(unknownTail)
	return err
}

func writeJSONList(w *bufio.Writer, t Type, meta metav1.ListMeta, objects iter.Seq2[Object, error]) error {
	metadata, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, `{"kind":%s,"apiVersion":%s,"metadata":%s,"items":[`,
		quote(t.Kind), quote(t.GroupVersion().String()), metadata)
	first := true
	for o, err := range objects {
		if err != nil {
			return err
		}
		if !first {
			_ = w.WriteByte(',')
		}
		first = false
		if _, err := w.Write(o.Raw); err != nil {
			return err
		}
	}
	_, err = w.WriteString("]}\n")
	return err
}
