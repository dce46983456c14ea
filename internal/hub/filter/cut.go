package filter

import (
	"encoding/json"
	"fmt"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

// form is which of the two types an object is of.
type form uint8

const (
	slice form = iota + 1
	endpoints
)

// cut returns an object with only those endpoints that are kept: the same bytes if that is all of them. An endpoint without
// a node is asked about with "".
func cut(e stream.Encoding, f form, raw []byte, keep func(node string) bool) ([]byte, error) {
	whole := true
	near := func(node string) bool {
		kept := keep(node)
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

func cutProtobuf(f form, raw []byte, keep func(node string) bool) ([]byte, error) {
	if f == slice {
		return edit.Change(raw, func(endpoint edit.Field) ([]byte, error) {
			return nearField(endpoint, edit.EndpointNodeName, keep)
		}, edit.SliceEndpoints)
	}
	return edit.Change(raw, func(subset edit.Field) ([]byte, error) {
		left := 0
		becomes, err := edit.Change(subset.Value, func(address edit.Field) ([]byte, error) {
			stays, err := nearField(address, edit.AddressNodeName, keep)
			if stays != nil {
				left++
			}
			return stays, err
		}, edit.SubsetReady, edit.SubsetNotReady)
		if left == 0 {
			return nil, err
		}
		return becomes, err
	}, edit.EndpointsSubsets)
}

// nearField keeps an endpoint or address or not, by the field in which its node is.
func nearField(f edit.Field, node edit.Number, keep func(node string) bool) ([]byte, error) {
	var at string
	for part, err := range edit.Fields(f.Value) {
		if err != nil {
			return nil, err
		}
		if part.Number == node {
			at = string(part.Value)
		}
	}
	if !keep(at) {
		return nil, nil
	}
	return f.Value, nil
}

// members of a JSON object, those that are of no interest included.
type jsonObject = map[string]json.RawMessage

func cutJSON(f form, raw []byte, keep func(node string) bool) ([]byte, error) {
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
func near(object jsonObject, name string, keep func(node string) bool) (int, error) {
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
		}
		if err := json.Unmarshal(raw, &place); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if keep(place.NodeName) {
			left = append(left, raw)
		}
	}
	return len(left), put(object, name, left)
}

func nearSubsets(object jsonObject, keep func(node string) bool) error {
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
