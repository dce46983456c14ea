package filter

import (
	"encoding/json"
	"fmt"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

// form says which of the two types an object has.
type form uint8

const (
	slice form = iota + 1
	endpoints
)

// cut returns an object with only the endpoints that keep allows, by their node; "" means that the endpoint has none. If keep
// allows all of them, the result is raw itself.
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

// nearField returns an endpoint or address if keep allows its node, else nil. The field node has the node's name.
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

// jsonObject has all members of a JSON object, also those that cut does not look at.
type jsonObject = map[string]json.RawMessage

func cutJSON(f form, raw []byte, keep func(node string) bool) ([]byte, error) {
	var object jsonObject
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if f == slice {
		// The field is required, also when it is empty: clients in other languages look for it.
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

// near drops the endpoints or addresses that keep does not allow from a list, and returns how many are left.
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
