package stream

import (
	"errors"
	"fmt"

	"yurtcoordinator/internal/stream/edit"
)

// magic begins every Kubernetes message that stands alone; a runtime.Unknown follows.
var magic = []byte("k8s\x00")

// protobufHead reads key and revision. Of a scalar that occurs twice, the last one counts.
func protobufHead(raw []byte) (h head, err error) {
	for f, err := range edit.Inside(raw, edit.Metadata) {
		if err != nil {
			return h, err
		}
		switch f.Number {
		case edit.Name:
			h.name, err = f.Bytes()
		case edit.Namespace:
			h.namespace, err = f.Bytes()
		case edit.ResourceVersion:
			h.version, err = f.Bytes()
		}
		if err != nil {
			return h, fmt.Errorf("metadata: %w", err)
		}
	}
	return h, nil
}

// protobufLabels reads an object's labels and nothing else.
func protobufLabels(raw []byte) (m map[string]string, err error) {
	for f, err := range edit.Inside(raw, edit.Metadata) {
		if err != nil {
			return nil, err
		}
		if f.Number != edit.Labels {
			continue
		}
		if m == nil {
			m = make(map[string]string)
		}
		if err := readEntry(f, m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// readEntry puts an entry of a map into m.
func readEntry(f edit.Field, m map[string]string) error {
	entry, err := f.Bytes()
	if err != nil {
		return err
	}
	var key, value []byte
	for f, err := range edit.Fields(entry) {
		if err != nil {
			return err
		}
		switch f.Number {
		case edit.MapKey:
			key = f.Value
		case edit.MapValue:
			value = f.Value
		}
	}
	m[string(key)] = string(value)
	return nil
}

// openUnknown reads a runtime.Unknown with its magic. What it returns are views.
func openUnknown(data []byte) (typeMeta, raw []byte, err error) {
	for f, err := range edit.Fields(data[len(magic):]) {
		if err != nil {
			return nil, nil, err
		}
		switch f.Number {
		case edit.UnknownTypeMeta:
			if typeMeta != nil {
				return nil, nil, errors.New("malformed envelope: it has two types")
			}
			typeMeta, err = f.Bytes()
		case edit.UnknownRaw:
			raw, err = f.Bytes()
		case edit.UnknownContentEncoding:
			if len(f.Value) > 0 {
				err = fmt.Errorf("the content encoding %.40q is not supported", f.Value)
			}
		case edit.UnknownContentType:
			if len(f.Value) > 0 && string(f.Value) != mediaProtobuf {
				err = fmt.Errorf("an envelope holds %.40q: want %s", f.Value, mediaProtobuf)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if raw == nil {
		return nil, nil, errors.New("malformed envelope: it is empty")
	}
	return typeMeta, raw, nil
}

// readTypeMeta reads a runtime.TypeMeta.
func readTypeMeta(message []byte) (Type, error) {
	var apiVersion, kind []byte
	for f, err := range edit.Fields(message) {
		if err != nil {
			return Type{}, err
		}
		switch f.Number {
		case edit.TypeMetaAPIVersion:
			apiVersion = f.Value
		case edit.TypeMetaKind:
			kind = f.Value
		}
	}
	return typeOf(Protobuf, string(apiVersion), string(kind))
}

// appendUnknownHead is a runtime.Unknown up to its content, which must follow.
func appendUnknownHead(b []byte, t Type, size int) []byte {
	apiVersion := t.GroupVersion().String()
	b = append(b, magic...)
	b = edit.AppendHead(b, edit.UnknownTypeMeta,
		edit.Size(edit.TypeMetaAPIVersion, len(apiVersion))+edit.Size(edit.TypeMetaKind, len(t.Kind)))
	b = edit.Append(b, edit.TypeMetaAPIVersion, apiVersion)
	b = edit.Append(b, edit.TypeMetaKind, t.Kind)
	return edit.AppendHead(b, edit.UnknownRaw, size)
}

// unknownTail is what Kubernetes writes after the content: neither content encoding nor content type.
var unknownTail = edit.Append(edit.Append(nil, edit.UnknownContentEncoding, ""), edit.UnknownContentType, "")
