package stream

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of Kubernetes' messages (generated.proto of apimachinery's runtime and meta/v1). metadata is field 1 of
// every kind that is an object, and of every list, whose items are field 2.
const (
	unknownTypeMeta        = 1
	unknownRaw             = 2
	unknownContentEncoding = 3
	unknownContentType     = 4

	typeMetaAPIVersion = 1
	typeMetaKind       = 2

	watchEventType   = 1
	watchEventObject = 2
	rawExtensionRaw  = 1

	objectMetadata = 1
	listItems      = 2

	metaName            = 1
	metaNamespace       = 3
	metaResourceVersion = 6
	metaLabels          = 11
	metaAnnotations     = 12
	mapKey              = 1
	mapValue            = 2
)

// magic begins every message of Kubernetes that stands alone; a runtime.Unknown follows.
var magic = []byte("k8s\x00")

var errGroup = errors.New("a field is a group, which Kubernetes never writes")

// fields calls f for each field of a message; value is nil unless the field is length-delimited. It reads the whole
// message, so that a truncated one is noticed.
func fields(message []byte, f func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, wire, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("malformed message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		var value []byte
		switch wire {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType, protowire.Fixed32Type, protowire.Fixed64Type:
			n = protowire.ConsumeFieldValue(number, wire, message)
		default:
			return errGroup
		}
		if n < 0 {
			return fmt.Errorf("malformed message: field %d: %w", number, protowire.ParseError(n))
		}
		message = message[n:]
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}

// want says that a field that is read must be length-delimited.
func want(name string, value []byte) error {
	if value == nil {
		return fmt.Errorf("malformed message: %s is not length-delimited", name)
	}
	return nil
}

// protobufHead reads key and revision. Scalars that occur twice: the last one counts, and metadata that occurs twice is
// merged, as protobuf has it.
func protobufHead(raw []byte) (h head, err error) {
	err = fields(raw, func(number protowire.Number, metadata []byte) error {
		if number != objectMetadata {
			return nil
		}
		if err := want("metadata", metadata); err != nil {
			return err
		}
		return fields(metadata, func(number protowire.Number, value []byte) error {
			switch number {
			case metaName:
				h.name = value
				return want("metadata.name", value)
			case metaNamespace:
				h.namespace = value
				return want("metadata.namespace", value)
			case metaResourceVersion:
				h.version = value
				return want("metadata.resourceVersion", value)
			default:
				return nil
			}
		})
	})
	return h, err
}

// protobufMap reads a map of strings that is a field of metadata; nil if it is empty.
func protobufMap(raw []byte, field protowire.Number) (m map[string]string, err error) {
	err = fields(raw, func(number protowire.Number, metadata []byte) error {
		if number != objectMetadata {
			return nil
		}
		return fields(metadata, func(number protowire.Number, entry []byte) error {
			if number != field {
				return nil
			}
			if err := want("an entry of a map", entry); err != nil {
				return err
			}
			var key, value []byte
			if err := fields(entry, func(number protowire.Number, v []byte) error {
				switch number {
				case mapKey:
					key = v
				case mapValue:
					value = v
				}
				return nil
			}); err != nil {
				return err
			}
			if m == nil {
				m = make(map[string]string)
			}
			m[string(key)] = string(value)
			return nil
		})
	})
	return m, err
}

// openUnknown reads a runtime.Unknown with its magic. What it returns are views.
func openUnknown(data []byte) (typeMeta, raw []byte, err error) {
	err = fields(data[len(magic):], func(number protowire.Number, value []byte) error {
		switch number {
		case unknownTypeMeta:
			if typeMeta != nil {
				return errors.New("malformed envelope: it has two types")
			}
			typeMeta = value
			return want("typeMeta", value)
		case unknownRaw:
			raw = value
			return want("raw", value)
		case unknownContentEncoding:
			if len(value) > 0 {
				return fmt.Errorf("the content encoding %.40q is not supported", value)
			}
		case unknownContentType:
			if len(value) > 0 && string(value) != mediaProtobuf {
				return fmt.Errorf("an envelope holds %.40q: want %s", value, mediaProtobuf)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case raw == nil:
		return nil, nil, errors.New("malformed envelope: it is empty")
	default:
		return typeMeta, raw, nil
	}
}

// readTypeMeta reads a runtime.TypeMeta.
func readTypeMeta(message []byte) (Type, error) {
	var apiVersion, kind []byte
	err := fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case typeMetaAPIVersion:
			apiVersion = value
		case typeMetaKind:
			kind = value
		}
		return nil
	})
	if err != nil {
		return Type{}, err
	}
	return typeOf(Protobuf, string(apiVersion), string(kind))
}

// appendUnknownHead is a runtime.Unknown up to its content, which must follow.
func appendUnknownHead(b []byte, t Type, size int) []byte {
	apiVersion := t.GroupVersion().String()
	b = append(b, magic...)
	b = protowire.AppendTag(b, unknownTypeMeta, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeOfBytes(typeMetaAPIVersion, len(apiVersion))+sizeOfBytes(typeMetaKind, len(t.Kind))))
	b = protowire.AppendTag(b, typeMetaAPIVersion, protowire.BytesType)
	b = protowire.AppendString(b, apiVersion)
	b = protowire.AppendTag(b, typeMetaKind, protowire.BytesType)
	b = protowire.AppendString(b, t.Kind)
	return appendBytesHead(b, unknownRaw, size)
}

// unknownTail is what Kubernetes writes after the content: neither content encoding nor content type.
var unknownTail = []byte{
	unknownContentEncoding<<3 | byte(protowire.BytesType), 0,
	unknownContentType<<3 | byte(protowire.BytesType), 0,
}

// appendBytesHead is the tag and length of a field whose content must follow.
func appendBytesHead(b []byte, number protowire.Number, size int) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// sizeOfBytes is the size of a length-delimited field.
func sizeOfBytes(number protowire.Number, size int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(size)
}
