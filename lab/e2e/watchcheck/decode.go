package watchcheck

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	typeJSON     = "application/json"
	typeProtobuf = "application/vnd.kubernetes.protobuf"

	// maxFrame bounds one event; etcd's own limit for an object is 1.5 MiB.
	maxFrame = 16 << 20
	// maxList bounds a list.
	maxList = 1 << 30
)

// object is the part of an object that a recorder reads.
type object struct {
	key      string
	item     Item
	endsInit bool
}

// head is the part of both encodings besides the content.
type head struct {
	Metadata struct {
		Namespace       string            `json:"namespace"`
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// readObject reads the JSON of one object. A bookmark has no name.
func readObject(raw []byte) (object, error) {
	var h head
	if err := json.Unmarshal(raw, &h); err != nil {
		return object{}, fmt.Errorf("read an object: %w", err)
	}
	revision, err := parse(h.Metadata.ResourceVersion)
	if err != nil {
		return object{}, err
	}
	hash, err := hashOf(raw)
	if err != nil {
		return object{}, err
	}
	key := h.Metadata.Name
	if h.Metadata.Namespace != "" {
		key = h.Metadata.Namespace + "/" + key
	}
	return object{
		key: key, item: Item{Revision: revision, Hash: hash},
		endsInit: h.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true",
	}, nil
}

func parse(resourceVersion string) (uint64, error) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("resourceVersion %q is no revision", resourceVersion)
	}
	return n, nil
}

// hashOf returns equal hashes for equal contents, whatever the order of fields. It leaves out kind and apiVersion,
// which items of lists lack, and the resourceVersion, which is compared separately.
func hashOf(raw []byte) (uint64, error) {
	var content map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&content); err != nil {
		return 0, fmt.Errorf("read an object: %w", err)
	}
	delete(content, "kind")
	delete(content, "apiVersion")
	if m, ok := content["metadata"].(map[string]any); ok {
		delete(m, "resourceVersion")
	}
	canonical, err := json.Marshal(content)
	if err != nil {
		return 0, fmt.Errorf("write an object: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(canonical) // a hash never fails
	return h.Sum64(), nil
}

// toJSON decodes an enveloped Protobuf message of a built-in type.
func toJSON(raw []byte) (runtime.Object, []byte, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("read Protobuf: %w", err)
	}
	j, err := json.Marshal(o)
	if err != nil {
		return nil, nil, fmt.Errorf("write an object: %w", err)
	}
	return o, j, nil
}

// readList reads the body of a list.
func readList(body io.Reader, protobuf bool) (uint64, map[string]Item, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxList))
	if err != nil {
		return 0, nil, err
	}
	var list struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if protobuf {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return 0, nil, fmt.Errorf("read a list: %w", err)
		}
		l, err := meta.ListAccessor(o)
		if err != nil {
			return 0, nil, fmt.Errorf("read a list: %T is none: %w", o, err)
		}
		list.Metadata.ResourceVersion, list.Metadata.Continue = l.GetResourceVersion(), l.GetContinue()
		err = meta.EachListItem(o, func(item runtime.Object) error {
			j, err := json.Marshal(item)
			list.Items = append(list.Items, j)
			return err
		})
		if err != nil {
			return 0, nil, fmt.Errorf("read a list: %w", err)
		}
	} else if err := json.Unmarshal(raw, &list); err != nil {
		return 0, nil, fmt.Errorf("read a list: %w", err)
	}
	if list.Metadata.Continue != "" {
		return 0, nil, errors.New("a list without a limit came in pages")
	}
	revision, err := parse(list.Metadata.ResourceVersion)
	if err != nil {
		return 0, nil, fmt.Errorf("list: %w", err)
	}
	items := make(map[string]Item, len(list.Items))
	for _, raw := range list.Items {
		o, err := readObject(raw)
		if err != nil {
			return 0, nil, fmt.Errorf("list: %w", err)
		}
		if _, twice := items[o.key]; twice {
			return 0, nil, fmt.Errorf("the list holds %s twice", o.key)
		}
		items[o.key] = o.item
	}
	return revision, items, nil
}

// frame is one event of a watch, its object as JSON.
type frame struct {
	Type   string
	Object []byte
}

// frames reads a watch. It returns io.EOF at the end between frames, and io.ErrUnexpectedEOF within one.
type frames func() (frame, error)

func newFrames(body io.Reader, protobuf bool) frames {
	if protobuf {
		return func() (frame, error) { return readProtobufFrame(body) }
	}
	d := json.NewDecoder(body)
	return func() (frame, error) {
		var f struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.Decode(&f); err != nil {
			return frame{}, err
		}
		return frame{Type: f.Type, Object: f.Object}, nil
	}
}

func readProtobufFrame(body io.Reader) (frame, error) {
	var length [4]byte
	if _, err := io.ReadFull(body, length[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("an event of %d bytes is longer than %d", n, maxFrame)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(body, raw); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(raw); err != nil {
		return frame{}, fmt.Errorf("read an event: %w", err)
	}
	_, j, err := toJSON(event.Object.Raw)
	return frame{Type: event.Type, Object: j}, err
}

// statusOf reads a refusal: the body of an answer, or the object of an ERROR event.
func statusOf(code int, body []byte) error {
	var s metav1.Status
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		if o, _, err := toJSON(body); err == nil {
			if status, ok := o.(*metav1.Status); ok {
				s = *status
			}
		}
	} else if json.Unmarshal(body, &s) != nil {
		s = metav1.Status{Message: string(body[:min(len(body), 200)])}
	}
	if code != 0 {
		s.Code = int32(code)
	}
	if s.Message == "" {
		s.Message = string(s.Reason)
	}
	return &apierrors.StatusError{ErrStatus: s}
}

func isExpired(err error) bool {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return true
	}
	var status *apierrors.StatusError
	return errors.As(err, &status) && status.ErrStatus.Code == 410
}
