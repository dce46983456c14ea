package replica

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

// Media types. No client on a node asks for the others that an API server writes (YAML, CBOR).
const (
	mediaJSON     = runtime.ContentTypeJSON
	mediaProtobuf = runtime.ContentTypeProtobuf
)

// shape is which part of each object a client wants.
type shape uint8

const (
	whole shape = iota
	metadata
)

// form is how one client gets objects: a shape in an encoding, made from objects of a type.
type form struct {
	shape shape
	from  stream.Type
	// to is what the client gets.
	to stream.Type
}

var kindPartial = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")

// negotiate returns the best form that a client accepts and that objects of type t can be given in. It never chooses a table,
// because kubectl, which asks for one, also accepts objects and prints their names and ages.
func negotiate(r *http.Request, verb string, t stream.Type) (*form, error) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	known := false // one of the media types
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, e := range encodingsOf(clause, t) {
			known = true
			if f := formOf(clause.Params, e, verb, t); f != nil {
				return f, nil
			}
		}
	}
	err := notAcceptable(t)
	if !known && scheme.Scheme.Recognizes(t.GroupVersionKind) {
		err.ErrStatus.Details = &metav1.StatusDetails{} // so it is at an API server
	}
	return nil, err
}

// encodingsOf returns the encodings that a clause of an Accept header allows, those that need no conversion first.
func encodingsOf(c goautoneg.Accept, t stream.Type) []stream.Encoding {
	switch {
	case c.Type == "*" && c.SubType == "*", c.Type == "application" && c.SubType == "*":
		return []stream.Encoding{stream.JSON, t.Encoding} // JSON is what an API server takes for anything
	case c.Type+"/"+c.SubType == mediaJSON:
		return []stream.Encoding{stream.JSON}
	case c.Type+"/"+c.SubType == mediaProtobuf:
		return []stream.Encoding{stream.Protobuf}
	default:
		return nil
	}
}

// formOf returns the form that an encoding and a clause's parameters mean, or nil if there is no such form.
func formOf(params map[string]string, e stream.Encoding, verb string, t stream.Type) *form {
	if s := params["stream"]; s != "" && s != "watch" {
		return nil
	}
	f := &form{from: t, to: stream.Type{Encoding: e}}
	as := schema.GroupVersionKind{Group: params["g"], Version: params["v"], Kind: params["as"]}
	list := strings.TrimSuffix(as.Kind, "List") != as.Kind
	switch {
	case as == schema.GroupVersionKind{}:
		if e != t.Encoding && (e != stream.JSON || !scheme.Scheme.Recognizes(t.GroupVersionKind)) {
			return nil
		}
		f.to.GroupVersionKind = t.GroupVersionKind
	case as.GroupVersion() == kindPartial.GroupVersion() && strings.TrimSuffix(as.Kind, "List") == kindPartial.Kind:
		if list != (verb == "list") {
			return nil
		}
		f.shape, f.to.GroupVersionKind = metadata, kindPartial
	default:
		return nil
	}
	return f
}

func notAcceptable(t stream.Type) *apierrors.StatusError {
	media := []string{mediaJSON, mediaProtobuf}
	if t.Encoding == stream.JSON {
		media = media[:1]
	} else if !scheme.Scheme.Recognizes(t.GroupVersionKind) {
		media = media[1:]
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("%s is given as %s, and as metadata; accept one of them",
			t.Kind, strings.Join(media, " or ")),
	}}
}

// verbatim reports whether objects are sent as they came.
func (f *form) verbatim() bool { return f.shape == whole && f.from.Encoding == f.to.Encoding }

// object returns an object in the client's form. If alone is true, the object is for a get or a watch event, and has its kind. In
// a list, objects of built-in types have no kind in JSON.
func (f *form) object(o stream.Object, alone bool) (stream.Object, error) {
	var err error
	switch {
	case f.verbatim():
	case f.shape == metadata && f.from.Encoding == stream.Protobuf && f.to.Encoding == stream.Protobuf:
		o.Raw, err = onlyMetadata(o.Raw)
	case f.shape == metadata:
		o.Raw, err = f.partial(o)
	default:
		o, err = asJSON(f.from, o, alone)
	}
	if err != nil {
		err = fmt.Errorf("write %s %q of revision %d as %s %s: %w",
			f.from.Kind, o.Key, o.Revision, f.to.Encoding, f.to.Kind, err)
	}
	return o, err
}

func (f *form) partial(o stream.Object) ([]byte, error) {
	m, err := stream.ScanMeta(f.from.Encoding, o.Raw)
	if err != nil {
		return nil, err
	}
	p := metav1.PartialObjectMetadata{ObjectMeta: m}
	if f.to.Encoding == stream.Protobuf {
		return p.Marshal()
	}
	p.SetGroupVersionKind(kindPartial)
	return json.Marshal(&p)
}

// asJSON returns an object in JSON, with its kind if alone is true. JSON loses the fields that this program's types do not know.
// An object with such fields gets a marked revision (ADR 19). No API server takes a marked revision, so nobody writes the object
// back without the fields.
func asJSON(t stream.Type, o stream.Object, alone bool) (stream.Object, error) {
	if t.Encoding == stream.JSON {
		o.Raw = stream.Envelope(t, o.Raw)
		return o, nil
	}
	decoded, err := decode(t, o.Raw)
	if err != nil {
		return o, err
	}
	if alone {
		decoded.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind)
	}
	if named, ok := decoded.(metav1.Object); ok && !holds(decoded, o.Raw) {
		o.Revision = marked(o.Revision, o.Raw)
		named.SetResourceVersion(o.Revision.String())
	}
	o.Raw, err = json.Marshal(decoded)
	return o, err
}

// holds reports whether an object has everything that was in the bytes from which it was decoded.
func holds(decoded runtime.Object, raw []byte) bool {
	m, ok := decoded.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return false
	}
	again, err := m.Marshal()
	return err == nil && edit.Covers(again, raw)
}

// decode returns an object of a type that the scheme knows.
func decode(t stream.Type, raw []byte) (runtime.Object, error) {
	o, err := scheme.Scheme.New(t.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	if t.Encoding == stream.JSON {
		return o, json.Unmarshal(raw, o)
	}
	m, ok := o.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, fmt.Errorf("%s has no protobuf form", t.Kind)
	}
	return o, m.Unmarshal(raw)
}

// errorEncoding is the encoding of errors for a client: Protobuf if that is its first choice.
func errorEncoding(r *http.Request) stream.Encoding {
	clauses := goautoneg.ParseAccept(r.Header.Get("Accept"))
	i := slices.IndexFunc(clauses, func(c goautoneg.Accept) bool {
		return c.Type == "*" || c.Type == "application" && c.SubType != "yaml"
	})
	if i >= 0 && clauses[i].Type+"/"+clauses[i].SubType == mediaProtobuf {
		return stream.Protobuf
	}
	return stream.JSON
}
