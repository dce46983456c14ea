package stream

import (
	"fmt"
	"mime"
)

// Media types, as API servers write them.
const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// EncodingOf reads a Content-Type. It fails on what this package cannot read, Tables and partial objects included.
func EncodingOf(contentType string) (Encoding, error) {
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, fmt.Errorf("content type %q: %w", contentType, err)
	}
	if as := parameters["as"]; as != "" {
		return 0, fmt.Errorf("content type %q: want whole objects, not as=%s", contentType, as)
	}
	switch media {
	case mediaJSON:
		return JSON, nil
	case mediaProtobuf:
		return Protobuf, nil
	default:
		return 0, fmt.Errorf("content type %q: want %s or %s", contentType, mediaProtobuf, mediaJSON)
	}
}

// ContentType is the Content-Type of a list or an object, or of a watch stream, as API servers write it.
func (e Encoding) ContentType(watch bool) string {
	switch {
	case e == Protobuf && watch:
		return mediaProtobuf + ";stream=watch"
	case e == Protobuf:
		return mediaProtobuf
	default:
		return mediaJSON // API servers give it no parameter, watch or not
	}
}

// String is the encoding's name.
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "JSON"
	case Protobuf:
		return "Protobuf"
	default:
		return "no encoding"
	}
}
