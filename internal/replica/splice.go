package replica

import (
	"encoding/json"
	"errors"
	"fmt"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

var errNoMetadata = errors.New("an object without metadata")

// withRevision returns a copy of an object with another resourceVersion, all else as it was.
func withRevision(e stream.Encoding, raw []byte, revision edge.Revision) ([]byte, error) {
	if e == stream.JSON {
		return withRevisionJSON(raw, revision)
	}
	metadata, err := edit.Only(raw, edit.Metadata)
	if err != nil {
		return nil, err
	}
	revised, err := edit.Set(metadata.Value, edit.ResourceVersion, []byte(revision.String()))
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return edit.Set(raw, edit.Metadata, revised)
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

// onlyMetadata returns the PartialObjectMetadata of a Protobuf object. Both messages have the metadata in the same field, so
// the result is a piece of the object's own bytes.
func onlyMetadata(raw []byte) ([]byte, error) {
	metadata, err := edit.Only(raw, edit.Metadata)
	return metadata.Raw, err
}
