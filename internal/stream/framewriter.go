package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/stream/edit"
)

// FrameWriter writes a watch stream. It does not copy objects, so each event is two or three writes. The io.Writer should
// therefore be buffered, as an http.ResponseWriter is. A FrameWriter does not flush.
type FrameWriter struct {
	w       io.Writer
	typ     Type
	scratch []byte
}

// NewFrameWriter writes a stream of objects of t.
func NewFrameWriter(w io.Writer, t Type) *FrameWriter { return &FrameWriter{w: w, typ: t} }

// Write writes one event. Of a bookmark only the Object's Revision counts.
func (f *FrameWriter) Write(event Event) error {
	if f.typ.Kind == "" || f.typ.Version == "" {
		return errors.New("cannot write an event: the type of the objects is not known")
	}
	var raw []byte
	switch event.Type {
	case Added, Modified, Deleted:
		raw = event.Object.Raw
	case Bookmark, InitialEventsEnd:
		if event.Object.Revision == 0 {
			return errors.New("cannot write a bookmark without a revision")
		}
		var err error
		m := metav1.ObjectMeta{ResourceVersion: event.Object.Revision.String()}
		if event.Type == InitialEventsEnd {
			m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		if raw, err = Bare(f.typ.Encoding, m); err != nil {
			return err
		}
	default:
		return fmt.Errorf("cannot write an event of type %d", event.Type)
	}
	return f.write(event.Type.String(), f.typ, raw)
}

// WriteError writes the event that ends a stream with an error. A status of code 410 says ErrExpired.
func (f *FrameWriter) WriteError(status *metav1.Status) error {
	t, raw, err := encodeStatus(f.typ.Encoding, status)
	if err != nil {
		return err
	}
	return f.write("ERROR", t, raw)
}

func (f *FrameWriter) write(name string, t Type, raw []byte) error {
	if t.Encoding == Protobuf {
		return f.protobuf(name, t, raw)
	}
	before, rest := missingTypeMeta(t, raw)
	return f.json(name, before, rest)
}

// protobuf writes everything up to the object, then the object, which is last in each of the messages around it.
func (f *FrameWriter) protobuf(name string, t Type, raw []byte) error {
	// Sizes come before contents, so the envelope's head is made first, behind where the frame's head will be.
	const room = 64 // more than the frame's head takes
	b := f.scratch[:0]
	b = append(b, make([]byte, room)...)
	b = appendUnknownHead(b, t, len(raw))
	f.scratch = b
	envelope := len(b) - room + len(raw)
	extension := edit.Size(edit.RawExtensionRaw, envelope)
	size := edit.Size(edit.WatchEventType, len(name)) + edit.Size(edit.WatchEventObject, extension)
	if size > math.MaxUint32 {
		return fmt.Errorf("cannot write an event of %d bytes", size)
	}
	var front [room]byte
	head := binary.BigEndian.AppendUint32(front[:0], uint32(size))
	head = edit.Append(head, edit.WatchEventType, name)
	head = edit.AppendHead(head, edit.WatchEventObject, extension)
	head = edit.AppendHead(head, edit.RawExtensionRaw, envelope)
	begin := room - len(head)
	copy(b[begin:], head)
	if _, err := f.w.Write(b[begin:]); err != nil {
		return err
	}
	_, err := f.w.Write(raw)
	return err
}

func (f *FrameWriter) json(name string, before, rest []byte) error {
	b := f.scratch[:0]
	b = append(b, `{"type":"`...)
	b = append(b, name...)
	b = append(b, `","object":`...)
	b = append(b, before...)
	f.scratch = b
	if _, err := f.w.Write(b); err != nil {
		return err
	}
	if _, err := f.w.Write(rest); err != nil {
		return err
	}
	_, err := io.WriteString(f.w, "}\n")
	return err
}
