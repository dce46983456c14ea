package stream

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Envelope makes an object of a known Type stand alone, as in the answer to a get. In Protobuf the result is byte for byte what
// Kubernetes writes, also to its store. In JSON the result is raw, with kind and apiVersion put in front if they are missing.
func Envelope(t Type, raw []byte) []byte {
	if t.Encoding == Protobuf {
		b := make([]byte, 0, len(magic)+len(t.Group)+len(t.Version)+len(t.Kind)+24+len(raw))
		b = appendUnknownHead(b, t, len(raw))
		b = append(b, raw...)
		return append(b, unknownTail...)
	}
	before, rest := missingTypeMeta(t, raw)
	if before == nil {
		return bytes.Clone(raw)
	}
	return append(before, rest...)
}

// OpenEnvelope reads what Envelope writes, and any object that stands alone. What it returns is a part of data.
func OpenEnvelope(data []byte) (Type, []byte, error) {
	if bytes.HasPrefix(data, magic) {
		typeMeta, raw, err := openUnknown(data)
		if err != nil {
			return Type{}, nil, err
		}
		t, err := readTypeMeta(typeMeta)
		if err != nil {
			return Type{}, nil, err
		}
		return t, raw, nil
	}
	h, err := jsonHead(data)
	if err != nil {
		return Type{}, nil, err
	}
	t, err := typeOf(JSON, h.apiVersion, h.kind)
	if err != nil {
		return Type{}, nil, err
	}
	return t, bytes.TrimSpace(data), nil
}

// Bare is an object of any kind that has nothing but metadata.
func Bare(e Encoding, m metav1.ObjectMeta) ([]byte, error) {
	o := metav1.PartialObjectMetadata{ObjectMeta: m}
	switch e {
	case Protobuf:
		return o.Marshal() // its field 1 is what it is of any kind
	case JSON:
		return json.Marshal(o)
	default:
		return nil, errNoEncoding
	}
}
