package filter

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

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
	sliceEndpoints   = 2
	endpointNodeName = 6
	endpointZone     = 7

	endpointsSubsets = 2
	subsetReady      = 1
	subsetNotReady   = 2
	addressNodeName  = 4
)

// cut returns an object with only those endpoints that are kept: the same bytes if that is all of them. An endpoint without
// a node or zone is asked about with "".
func cut(e stream.Encoding, f form, raw []byte, keep func(node, zone string) bool) ([]byte, error) {
	whole := true
	near := func(node, zone string) bool {
		kept := keep(node, zone)
		whole = whole && kept
		return kept
	}
	var out []byte
	var err error
	switch e {
	case stream.Protobuf:
		out, err = cutProtobuf(f, raw, near)
	case stream.JSON:
		out, err = cutJSON(f, raw, near)
	default:
		err = fmt.Errorf("encoding %d is not known", e)
	}
	if err == nil && whole {
		return raw, nil
	}
	return out, err
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

func cutProtobuf(f form, raw []byte, keep func(node, zone string) bool) ([]byte, error) {
	edits := map[protowire.Number]edit{}
	// near keeps a message or not, by the numbers of its node's and its zone's field.
	near := func(node, zone protowire.Number) edit {
		return func(message []byte) ([]byte, bool, error) {
			n, z, err := texts(message, node, zone)
			return message, err == nil && keep(n, z), err
		}
	}
	if f == slice {
		edits[sliceEndpoints] = near(endpointNodeName, endpointZone)
	} else {
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
	return edited(raw, edits)
}

// members of a JSON object, those that are of no interest included.
type jsonObject = map[string]json.RawMessage

func cutJSON(f form, raw []byte, keep func(node, zone string) bool) ([]byte, error) {
	var object jsonObject
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if f == slice {
		// Required, if empty: clients of other languages look for it.
		if _, err := near(object, "endpoints", keep); err != nil {
			return nil, err
		}
	} else if err := nearSubsets(object, keep); err != nil {
		return nil, err
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
