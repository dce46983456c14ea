package views

import "yurtcoordinator/internal/stream/edit"

// form is the type of an object: an EndpointSlice or Endpoints.
type form uint8

const (
	slice form = iota + 1
	endpoints
)

// cutObject drops the endpoints of an object whose node the function keep does not accept. For an endpoint without a node, keep
// gets "". If nothing is dropped, the result is raw itself.
func cutObject(f form, raw []byte, keep func(node string) bool) ([]byte, error) {
	whole := true
	out, err := nearOf(f, raw, func(node string) bool {
		kept := keep(node)
		whole = whole && kept
		return kept
	})
	if err == nil && whole {
		return raw, nil
	}
	return out, err
}

func nearOf(f form, raw []byte, keep func(node string) bool) ([]byte, error) {
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

// nearField returns an endpoint or address if the function keep accepts its node, else nil. The parameter node is the number of
// the protobuf field that has the node's name.
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
