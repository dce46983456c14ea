package stream

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream/edit"
)

var errNoEncoding = errors.New("the encoding of the objects is not known")

// head is an object's identity; empty is what is not there. kind and apiVersion are those that JSON has inside the object.
type head struct {
	namespace, name, version []byte // of a Protobuf object: parts of its bytes
	kind, apiVersion         string
}

// Scan reads an object's key and revision, and nothing else. The Object's Raw is raw itself. Scan reads all of raw, so that it
// fails if the object is truncated. It also fails if the name or the revision is missing, or if a name or namespace could not be
// a path segment. Such a name could point elsewhere in a store.
func Scan(e Encoding, raw []byte) (Object, error) {
	var h head
	var err error
	switch e {
	case Protobuf:
		h, err = protobufHead(raw)
	case JSON:
		h, err = jsonHead(raw)
	default:
		err = errNoEncoding
	}
	if err != nil {
		return Object{}, err
	}
	return h.object(raw)
}

// ScanMeta reads an object's metadata and nothing else. Unlike Scan it requires no field to be present.
func ScanMeta(e Encoding, raw []byte) (m metav1.ObjectMeta, err error) {
	switch e {
	case Protobuf:
		err = protobufMeta(raw, &m)
	case JSON:
		err = readJSON(raw, &struct {
			Metadata *metav1.ObjectMeta `json:"metadata"`
		}{&m})
	default:
		err = errNoEncoding
	}
	if err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("metadata: %w", err)
	}
	return m, nil
}

func protobufMeta(raw []byte, m *metav1.ObjectMeta) error {
	for metadata, err := range edit.Values(raw, edit.Metadata) {
		if err == nil {
			err = m.Unmarshal(metadata) // without a Reset: metadata that occurs twice is merged
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Labels reads an object's labels; nil if it has none.
func Labels(e Encoding, raw []byte) (labels.Set, error) {
	if e == Protobuf {
		return protobufLabels(raw)
	}
	m, err := ScanMeta(e, raw)
	return m.Labels, err
}

// object makes an Object. Both parts of its key share one allocation, because they live and die together.
func (h *head) object(raw []byte) (Object, error) {
	if len(h.name) == 0 {
		return Object{}, errors.New("malformed object: it has no metadata.name")
	}
	if !segment(h.name) {
		return Object{}, fmt.Errorf("malformed object: its name is %.100q", h.name)
	}
	if len(h.namespace) > 0 && !segment(h.namespace) {
		return Object{}, fmt.Errorf("malformed object: its namespace is %.100q", h.namespace)
	}
	revision, err := h.revision()
	if err != nil {
		return Object{}, fmt.Errorf("malformed object %.100q: %w", h.name, err)
	}
	var key strings.Builder
	key.Grow(len(h.namespace) + len(h.name))
	key.Write(h.namespace)
	key.Write(h.name)
	both := key.String()
	return Object{
		Key:      Key{Namespace: both[:len(h.namespace)], Name: both[len(h.namespace):]},
		Revision: revision,
		Raw:      raw,
	}, nil
}

// segment says whether a name can stand in a path: what Kubernetes demands of every name, and no control characters.
func segment(name []byte) bool {
	if string(name) == "." || string(name) == ".." || !utf8.Valid(name) {
		return false
	}
	for _, c := range name {
		if c == '/' || c == '%' || c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// revision reads the resourceVersion; without an allocation, for it is done for every event.
func (h *head) revision() (edge.Revision, error) {
	if len(h.version) == 0 {
		return 0, errors.New("it has no metadata.resourceVersion")
	}
	var n uint64
	for _, c := range h.version {
		if c < '0' || c > '9' {
			n = 0
			break
		}
		n = 10*n + uint64(c-'0')
	}
	if n == 0 || len(h.version) > 19 { // 20 digits may not fit
		return edge.ParseRevision(string(h.version))
	}
	return edge.Revision(n), nil
}

// typeOf makes a Type of what an object or list says of itself.
func typeOf(e Encoding, apiVersion, kind string) (Type, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return Type{}, fmt.Errorf("malformed object: %w", err)
	}
	if kind == "" || version.Version == "" {
		return Type{}, fmt.Errorf("malformed object: want a kind and an apiVersion, got %q and %q", kind, apiVersion)
	}
	return Type{GroupVersionKind: version.WithKind(kind), Encoding: e}, nil
}
