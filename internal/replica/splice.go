package replica

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Numbers of fields that every type of Kubernetes has in common: they are part of its wire format.
const (
	fieldMetadata        protowire.Number = 1 // of every object: ObjectMeta
	fieldName            protowire.Number = 1 // of ObjectMeta
	fieldNamespace       protowire.Number = 3 // of ObjectMeta
	fieldResourceVersion protowire.Number = 6 // of ObjectMeta
)

var errNoMetadata = errors.New("an object without metadata")

// withRevision returns a copy of an object with another resourceVersion, all else as it was.
func withRevision(e stream.Encoding, raw []byte, revision edge.Revision) ([]byte, error) {
	if e == stream.JSON {
		return withRevisionJSON(raw, revision)
	}
	start, body, end, err := findMessage(raw, fieldMetadata)
	if err != nil {
		return nil, err
	}
	metadata := make([]byte, 0, len(body)+24)
	for rest := body; len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil, fmt.Errorf("metadata: %w", protowire.ParseError(n))
		}
		if number != fieldResourceVersion {
			metadata = append(metadata, rest[:n]...)
		}
		rest = rest[n:]
	}
	metadata = protowire.AppendTag(metadata, fieldResourceVersion, protowire.BytesType)
	metadata = protowire.AppendString(metadata, revision.String())

	out := make([]byte, 0, len(raw)+len(metadata)-len(body)+8)
	out = append(out, raw[:start]...)
	out = protowire.AppendTag(out, fieldMetadata, protowire.BytesType)
	out = protowire.AppendBytes(out, metadata)
	return append(out, raw[end:]...), nil
}

func withRevisionJSON(raw []byte, revision edge.Revision) ([]byte, error) {
	var object, metadata map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(object["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoMetadata, err)
	}
	if metadata == nil {
		return nil, errNoMetadata
	}
	metadata["resourceVersion"] = json.RawMessage(`"` + revision.String() + `"`)
	m, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	object["metadata"] = m
	return json.Marshal(object)
}

func nameOnlyProtobuf(k stream.Key) []byte {
	var metadata []byte
	metadata = protowire.AppendString(protowire.AppendTag(metadata, fieldName, protowire.BytesType), k.Name)
	if k.Namespace != "" {
		metadata = protowire.AppendString(protowire.AppendTag(metadata, fieldNamespace, protowire.BytesType), k.Namespace)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldMetadata, protowire.BytesType), metadata)
}

func nameOnlyJSON(k stream.Key) ([]byte, error) {
	metadata := map[string]string{"name": k.Name}
	if k.Namespace != "" {
		metadata["namespace"] = k.Namespace
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// onlyMetadata returns the part of a Protobuf object that is a PartialObjectMetadata: both have the metadata in the same
// field, so it is a piece of the object's own bytes.
func onlyMetadata(raw []byte) ([]byte, error) {
	start, _, end, err := findMessage(raw, fieldMetadata)
	return raw[start:end], err
}

// findMessage finds a field of a message that is itself a message: where it starts with its tag, its content, and where it
// ends. It fails if the message is broken, or has no such field, or two (which protobuf would merge; no API server writes
// it so).
func findMessage(raw []byte, want protowire.Number) (start int, body []byte, end int, err error) {
	found := false
	for at := 0; at < len(raw); {
		number, kind, tag := protowire.ConsumeTag(raw[at:])
		if tag < 0 {
			return 0, nil, 0, protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(number, kind, raw[at+tag:])
		if n < 0 {
			return 0, nil, 0, protowire.ParseError(n)
		}
		if number == want {
			if found || kind != protowire.BytesType {
				return 0, nil, 0, fmt.Errorf("field %d is there twice, or not a message", want)
			}
			found = true
			body, _ = protowire.ConsumeBytes(raw[at+tag:])
			start, end = at, at+tag+n
		}
		at += tag + n
	}
	if !found {
		return 0, nil, 0, errNoMetadata
	}
	return start, body, end, nil
}
