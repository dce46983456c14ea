package filter

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// form is which of the two types an object is of.
type form uint8

const (
	slice form = iota + 1
	endpoints
)

// Field numbers of the types' Protobuf messages, which are part of Kubernetes' API.
const (
	objectMetadata      = 1 // of both
	metaResourceVersion = 6

	sliceEndpoints   = 2
	endpointNodeName = 6
	endpointZone     = 7

	endpointsSubsets = 2
	subsetReady      = 1
	subsetNotReady   = 2
	addressNodeName  = 4
)

var errNoMetadata = errors.New("an object without metadata")

// cut returns a copy of an object with another revision, and with only those endpoints that are kept; all if keep is
// nil. An endpoint without a node or zone is asked about with "".
func cut(e stream.Encoding, f form, raw []byte, keep func(node, zone string) bool, r edge.Revision) ([]byte, error) {
	switch e {
	case stream.Protobuf:
		return cutProtobuf(f, raw, keep, r)
	case stream.JSON:
		return cutJSON(f, raw, keep, r)
	default:
		return nil, fmt.Errorf("encoding %d is not known", e)
	}
}

// edit returns what a field's value becomes, or that the field goes.
type edit func(value []byte) (becomes []byte, stays bool, err error)

// edited returns a copy of a message in which some fields, which must be of wire type "bytes", are edited. All others stay
// as they are, in their order.
func edited(message []byte, edits map[protowire.Number]edit) ([]byte, error) {
	out := make([]byte, 0, len(message)+24)
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		field := message[:tag+n]
		message = message[tag+n:]
		change, ok := edits[number]
		if !ok {
			out = append(out, field...)
			continue
		}
		value, n := protowire.ConsumeBytes(field[tag:])
		if kind != protowire.BytesType || n < 0 {
			return nil, fmt.Errorf("field %d is of wire type %d, not %d", number, kind, protowire.BytesType)
		}
		becomes, stays, err := change(value)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", number, err)
		}
		if stays {
			out = append(out, field[:tag]...)
			out = protowire.AppendBytes(out, becomes)
		}
	}
	return out, nil
}

// texts returns the values of string fields, "" for those that are not there. The last one counts, as everywhere in
// Protobuf.
func texts(message []byte, a, b protowire.Number) (first, second string, err error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return "", "", protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return "", "", protowire.ParseError(n)
		}
		if kind == protowire.BytesType && (number == a || number == b) {
			value, _ := protowire.ConsumeBytes(message[tag : tag+n])
			if number == a {
				first = string(value)
			} else {
				second = string(value)
			}
		}
		message = message[tag+n:]
	}
	return first, second, nil
}

func cutProtobuf(f form, raw []byte, keep func(node, zone string) bool, r edge.Revision) ([]byte, error) {
	dated := false
	edits := map[protowire.Number]edit{objectMetadata: func(metadata []byte) ([]byte, bool, error) {
		rest, err := edited(metadata, map[protowire.Number]edit{
			metaResourceVersion: func([]byte) ([]byte, bool, error) { return nil, false, nil },
		})
		if err != nil || dated {
			return rest, true, err
		}
		dated = true
		rest = protowire.AppendTag(rest, metaResourceVersion, protowire.BytesType)
		return protowire.AppendString(rest, r.String()), true, nil
	}}
	// near keeps a message or not, by the numbers of its node's and its zone's field.
	near := func(node, zone protowire.Number) edit {
		return func(message []byte) ([]byte, bool, error) {
			n, z, err := texts(message, node, zone)
			return message, err == nil && keep(n, z), err
		}
	}
	switch {
	case keep == nil:
	case f == slice:
		edits[sliceEndpoints] = near(endpointNodeName, endpointZone)
	default:
		edits[endpointsSubsets] = func(subset []byte) ([]byte, bool, error) {
			left := 0
			count := func(message []byte) ([]byte, bool, error) {
				becomes, stays, err := near(addressNodeName, 0)(message)
				if stays {
					left++
				}
				return becomes, stays, err
			}
			becomes, err := edited(subset, map[protowire.Number]edit{subsetReady: count, subsetNotReady: count})
			return becomes, left > 0, err
		}
	}
	out, err := edited(raw, edits)
	if err == nil && !dated {
		err = errNoMetadata
	}
	return out, err
}

// members of a JSON object, those that are of no interest included.
type jsonObject = map[string]json.RawMessage

func cutJSON(f form, raw []byte, keep func(node, zone string) bool, r edge.Revision) ([]byte, error) {
	var object, metadata jsonObject
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(object["metadata"], &metadata); err != nil || metadata == nil {
		return nil, errors.Join(errNoMetadata, err)
	}
	metadata["resourceVersion"] = json.RawMessage(`"` + r.String() + `"`)
	if err := put(object, "metadata", metadata); err != nil {
		return nil, err
	}
	switch {
	case keep == nil:
	case f == slice:
		// Required, if empty: clients of other languages look for it.
		if _, err := near(object, "endpoints", keep); err != nil {
			return nil, err
		}
	default:
		if err := nearSubsets(object, keep); err != nil {
			return nil, err
		}
	}
	return json.Marshal(object)
}

func put(object jsonObject, name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	object[name] = raw
	return nil
}

// near keeps the near ones of a list of endpoints or addresses, and returns how many those are.
func near(object jsonObject, name string, keep func(node, zone string) bool) (int, error) {
	if object[name] == nil {
		return 0, nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(object[name], &all); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	left := make([]json.RawMessage, 0, len(all))
	for _, raw := range all {
		var place struct {
			NodeName string `json:"nodeName"`
			Zone     string `json:"zone"`
		}
		if err := json.Unmarshal(raw, &place); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if keep(place.NodeName, place.Zone) {
			left = append(left, raw)
		}
	}
	return len(left), put(object, name, left)
}

func nearSubsets(object jsonObject, keep func(node, zone string) bool) error {
	if object["subsets"] == nil {
		return nil
	}
	var subsets []jsonObject
	if err := json.Unmarshal(object["subsets"], &subsets); err != nil {
		return fmt.Errorf("subsets: %w", err)
	}
	left := make([]jsonObject, 0, len(subsets))
	for _, s := range subsets {
		total := 0
		for _, name := range []string{"addresses", "notReadyAddresses"} {
			n, err := near(s, name, keep)
			if err != nil {
				return err
			}
			if n == 0 {
				delete(s, name)
			}
			total += n
		}
		if total > 0 {
			left = append(left, s)
		}
	}
	return put(object, "subsets", left)
}
