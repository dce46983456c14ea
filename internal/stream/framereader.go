package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/stream/edit"
)

const (
	// restingBytes is the size of a FrameReader's buffer while nothing arrives. It is small, because a hub holds a thousand
	// watches that are silent most of the time.
	restingBytes = 4 << 10

	// readAhead is the size of the buffer while much arrives. It holds six EndpointSlices of 100 endpoints. For a larger frame
	// the buffer grows.
	readAhead = 64 << 10

	// frameHeader is the length of a frame, big-endian, in front of each Protobuf frame.
	frameHeader = 4
)

// aheads are buffers of readAhead bytes, for the FrameReaders to which much arrives at the moment.
var aheads = sync.Pool{New: func() any { return new([readAhead]byte) }}

// FrameReader reads a watch stream. It reads frames in place, in one buffer, which is small while nothing arrives. An event in
// Protobuf costs two allocations: a copy of its object, and the Key. A frame that claims to be large costs memory only as its
// bytes arrive.
type FrameReader struct {
	r        io.Reader
	encoding Encoding
	max      int
	buffer   []byte
	resting  []byte           // buffer, while nothing comes
	ahead    *[readAhead]byte // buffer, while much comes; nil if it is another
	// buffer[begin:end] has been read and not been told.
	begin, end int
	// text is the progress of the search for the end of a JSON frame.
	text textFrame
	// pending is the error with which r ended; it is returned once the buffer holds no more frames.
	pending error
	// failed is the error that every Read returns from now on.
	failed error

	typ      Type
	typeMeta []byte // that of the last Protobuf frame, so that an equal one is not read again
}

// ErrEventTooLarge says that an event is larger than its reader allows.
var ErrEventTooLarge = errors.New("an event of the watch stream is larger than allowed")

// NewFrameReader reads frames of at most maxFrame bytes, else ErrEventTooLarge.
func NewFrameReader(r io.Reader, e Encoding, maxFrame int) *FrameReader {
	f := &FrameReader{r: r, encoding: e, max: maxFrame, resting: make([]byte, restingBytes)}
	f.buffer = f.resting
	if e != JSON && e != Protobuf {
		f.failed = errNoEncoding
	}
	return f
}

// Type is the type of the objects. It has no Kind before the first frame with an object; a bookmark has one, too.
func (f *FrameReader) Type() Type { return f.typ }

// Buffered says that the next Read will return at once: a whole frame, or the end, is in the buffer.
func (f *FrameReader) Buffered() bool {
	if f.failed != nil || f.pending != nil {
		return true
	}
	_, whole, err := f.next()
	return whole || err != nil
}

// Read returns the next event. Its Raw is an allocation of its own, of exactly its size. A bookmark's Object has a Revision only.
// At the end of the stream Read fails with io.EOF, or with io.ErrUnexpectedEOF inside a frame. For an ERROR frame it fails with
// what ErrorOf returns. After an error, every Read returns the same error.
func (f *FrameReader) Read() (Event, error) {
	if f.failed != nil {
		return Event{}, f.failed
	}
	event, err := f.read()
	if err != nil {
		f.failed = err
		f.rest()
		f.buffer, f.resting = nil, nil
		return Event{}, err
	}
	return event, nil
}

func (f *FrameReader) read() (Event, error) {
	for {
		frame, whole, err := f.next()
		if err != nil {
			return Event{}, err
		}
		if whole {
			event, err := f.parse(frame)
			f.begin += len(frame)
			f.text = textFrame{}
			return event, err
		}
		if f.pending == nil {
			f.fill()
			continue
		}
		if errors.Is(f.pending, io.EOF) && f.begin < f.end {
			return Event{}, io.ErrUnexpectedEOF
		}
		return Event{}, f.pending
	}
}

// next is the frame at the front of the buffer, its header included, and whether it is whole.
func (f *FrameReader) next() (frame []byte, whole bool, err error) {
	if f.encoding == Protobuf {
		ahead := f.buffer[f.begin:f.end]
		if len(ahead) < frameHeader {
			return nil, false, nil
		}
		size := binary.BigEndian.Uint32(ahead)
		if uint64(size) > uint64(f.max) {
			return nil, false, f.tooLarge()
		}
		if len(ahead) < frameHeader+int(size) {
			return nil, false, nil
		}
		return ahead[:frameHeader+int(size)], true, nil
	}
	for f.text.at == 0 && f.begin < f.end && blank(f.buffer[f.begin]) {
		f.begin++
	}
	ahead := f.buffer[f.begin:f.end]
	if len(ahead) == 0 {
		return nil, false, nil
	}
	if ahead[0] != '{' {
		return nil, false, fmt.Errorf("malformed watch stream: %q where an event should begin", ahead[0])
	}
	whole = f.text.advance(ahead)
	if f.text.at > f.max {
		return nil, false, f.tooLarge()
	}
	return ahead[:f.text.at], whole, nil
}

func (f *FrameReader) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", ErrEventTooLarge, f.max)
}

// fill reads once, or finds out why there is no more. It makes room by moving what is there, then by growing.
func (f *FrameReader) fill() {
	switch {
	case f.begin == f.end:
		f.rest()
	case f.end == len(f.buffer) && f.begin > 0:
		f.end = copy(f.buffer, f.buffer[f.begin:f.end])
		f.begin = 0
	case f.end == len(f.buffer):
		f.grow()
	}
	for range 100 { // as bufio has it
		n, err := f.r.Read(f.buffer[f.end:])
		f.end += n
		f.pending = err
		if n > 0 || err != nil {
			return
		}
	}
	f.pending = io.ErrNoProgress
}

// rest replaces the buffer, which holds nothing of use, by the small one.
func (f *FrameReader) rest() {
	f.buffer, f.begin, f.end = f.resting, 0, 0
	if f.ahead != nil {
		aheads.Put(f.ahead)
		f.ahead = nil
	}
}

// grow makes room behind what is in the buffer.
func (f *FrameReader) grow() {
	full := f.buffer
	if len(full) < readAhead {
		f.ahead, _ = aheads.Get().(*[readAhead]byte)
		f.buffer = f.ahead[:]
		copy(f.buffer, full)
		return
	}
	f.buffer = make([]byte, 2*len(full))
	copy(f.buffer, full)
	if f.ahead != nil {
		aheads.Put(f.ahead)
		f.ahead = nil
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// textFrame finds the end of a JSON object. It looks at each byte once, even if the object arrives in many reads. It leaves
// errors inside the object to readJSON.
type textFrame struct {
	at, depth       int
	quoted, escaped bool
}

// advance goes on where the last call stopped, in a text that has become longer. It reports whether the object is complete. If
// so, the object ends at t.at.
func (t *textFrame) advance(text []byte) bool {
	if t.at > 0 && t.depth == 0 {
		return true
	}
	s := *t
	for s.at < len(text) {
		c := text[s.at]
		s.at++
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.escaped, s.quoted = c == '\\', c != '"'
		case c == '"':
			s.quoted = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth == 0 {
				*t = s
				return true
			}
		}
	}
	*t = s
	return false
}

// parse makes an event of a whole frame.
func (f *FrameReader) parse(frame []byte) (Event, error) {
	var name, raw []byte
	var h head
	var err error
	if f.encoding == Protobuf {
		name, raw, h, err = f.parseProtobuf(frame[frameHeader:])
	} else {
		name, raw, h, err = f.parseJSON(frame)
	}
	if err != nil {
		return Event{}, fmt.Errorf("watch event: %w", err)
	}
	var event Event
	switch string(name) {
	case "ADDED":
		event.Type = Added
	case "MODIFIED":
		event.Type = Modified
	case "DELETED":
		event.Type = Deleted
	case "BOOKMARK":
		return f.bookmark(raw, &h)
	case "ERROR":
		status, err := ReadStatus(raw)
		if err != nil {
			return Event{}, fmt.Errorf("the server ended the watch with an error that cannot be read: %w", err)
		}
		return Event{}, ErrorOf(&status)
	default:
		return Event{}, fmt.Errorf("watch event: its type is %.40q", name)
	}
	event.Object, err = h.object(nil)
	if err != nil {
		return Event{}, fmt.Errorf("watch event: %w", err)
	}
	event.Object.Raw = make([]byte, len(raw))
	copy(event.Object.Raw, raw)
	return event, nil
}

func (f *FrameReader) bookmark(raw []byte, h *head) (Event, error) {
	revision, err := h.revision()
	if err != nil {
		return Event{}, fmt.Errorf("bookmark: %w", err)
	}
	meta, err := ScanMeta(f.encoding, raw)
	if err != nil {
		return Event{}, fmt.Errorf("bookmark: %w", err)
	}
	t := Bookmark
	if meta.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		t = InitialEventsEnd
	}
	return Event{Type: t, Object: Object{Revision: revision}}, nil
}

// parseProtobuf returns views of the frame. Of an ERROR event raw is the whole envelope.
func (f *FrameReader) parseProtobuf(frame []byte) (name, raw []byte, h head, err error) {
	var envelope []byte
	for f, err := range edit.Fields(frame) {
		if err == nil && f.Number == edit.WatchEventType {
			name, err = f.Bytes()
		}
		if err != nil {
			return nil, nil, h, err
		}
	}
	for f, err := range edit.Inside(frame, edit.WatchEventObject) {
		if err == nil && f.Number == edit.RawExtensionRaw {
			envelope, err = f.Bytes()
		}
		if err != nil {
			return nil, nil, h, err
		}
	}
	if !bytes.HasPrefix(envelope, magic) {
		return nil, nil, h, errors.New("its object is not Protobuf")
	}
	if string(name) == "ERROR" {
		return name, envelope, h, nil
	}
	typeMeta, raw, err := openUnknown(envelope)
	if err != nil {
		return nil, nil, h, err
	}
	if f.typeMeta == nil || !bytes.Equal(typeMeta, f.typeMeta) {
		t, err := readTypeMeta(typeMeta)
		if err != nil {
			return nil, nil, h, err
		}
		if err := f.learn(t); err != nil {
			return nil, nil, h, err
		}
		f.typeMeta = append([]byte{}, typeMeta...)
	}
	h, err = protobufHead(raw)
	return name, raw, h, err
}

// parseJSON returns copies of what is in the frame.
func (f *FrameReader) parseJSON(frame []byte) (name, raw []byte, h head, err error) {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := readJSON(frame, &event); err != nil {
		return nil, nil, h, err
	}
	name, raw = []byte(event.Type), event.Object
	if raw == nil {
		return nil, nil, h, errors.New("it has no object")
	}
	if event.Type == "ERROR" {
		return name, raw, h, nil
	}
	if h, err = jsonHead(raw); err != nil {
		return nil, nil, h, err
	}
	t, err := typeOf(JSON, h.apiVersion, h.kind)
	if err != nil {
		return nil, nil, h, err
	}
	return name, raw, h, f.learn(t)
}

// learn records the type of the first object, and refuses another type, because readers would misread its objects.
func (f *FrameReader) learn(t Type) error {
	if f.typ.Kind != "" && f.typ != t {
		return fmt.Errorf("its object is a %s in a stream of %s", t.GroupVersionKind, f.typ.GroupVersionKind)
	}
	f.typ = t
	return nil
}
