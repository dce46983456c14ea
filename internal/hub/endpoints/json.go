package endpoints

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// jsonObject has all members of a JSON object, also those that nobody looks at.
type jsonObject = map[string]json.RawMessage

// sliceJSON returns a slice as it is shown.
func (o *object) sliceJSON() ([]byte, error) {
	var slice jsonObject
	if err := json.Unmarshal(o.Raw, &slice); err != nil {
		return nil, err
	}
	// The field is required, also when it is empty: clients in other languages look for it.
	if err := each(slice, "endpoints", o.endpointJSON); err != nil {
		return nil, err
	}
	return json.Marshal(slice)
}

// each replaces the objects of a list by what change returns; nil means that one goes.
func each(object jsonObject, name string, change func(json.RawMessage) (json.RawMessage, error)) error {
	if object[name] == nil {
		return nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(object[name], &all); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	left := make([]json.RawMessage, 0, len(all))
	for _, raw := range all {
		becomes, err := change(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if becomes != nil {
			left = append(left, becomes)
		}
	}
	return put(object, name, left)
}

func put(object jsonObject, name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	object[name] = raw
	return nil
}

func (o *object) endpointJSON(raw json.RawMessage) (json.RawMessage, error) {
	var had struct {
		Addresses  []string                       `json:"addresses"`
		Conditions discoveryv1.EndpointConditions `json:"conditions"`
		TargetRef  corev1.ObjectReference         `json:"targetRef"`
		NodeName   string                         `json:"nodeName"`
	}
	if err := json.Unmarshal(raw, &had); err != nil {
		return nil, err
	}
	was := conditionsOf(had.Conditions)
	e := endpoint{
		node: []byte(had.NodeName), lone: len(had.Addresses) == 1, serving: was.serving, terminating: was.terminating,
	}
	if len(had.Addresses) > 0 {
		e.address = []byte(had.Addresses[len(had.Addresses)-1])
	}
	e.refersTo(had.TargetRef)
	v, known := o.judge(e)
	if !known || !v.gone && v.address == "" && v.conditions == was {
		return raw, nil
	}
	o.changed = true
	if v.gone {
		return nil, nil
	}
	var becomes jsonObject
	if err := json.Unmarshal(raw, &becomes); err != nil {
		return nil, err
	}
	if err := put(becomes, "conditions", v.typed()); err != nil {
		return nil, err
	}
	if v.address != "" {
		if err := put(becomes, "addresses", []string{v.address}); err != nil {
			return nil, err
		}
	}
	return json.Marshal(becomes)
}

func (e *endpoint) refersTo(r corev1.ObjectReference) {
	if r.Kind == "Pod" {
		e.uid, e.namespace, e.name = []byte(r.UID), []byte(r.Namespace), []byte(r.Name)
	}
}

// endpointsJSON returns Endpoints as they are shown.
func (o *object) endpointsJSON() ([]byte, error) {
	var object jsonObject
	if err := json.Unmarshal(o.Raw, &object); err != nil {
		return nil, err
	}
	if err := each(object, "subsets", o.subsetJSON); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

func (o *object) subsetJSON(raw json.RawMessage) (json.RawMessage, error) {
	var subset jsonObject
	if err := json.Unmarshal(raw, &subset); err != nil {
		return nil, err
	}
	lists := map[bool][]json.RawMessage{}
	changed := false
	for _, was := range []bool{true, false} {
		var all []json.RawMessage
		if list := subset[listName(was)]; list != nil {
			if err := json.Unmarshal(list, &all); err != nil {
				return nil, fmt.Errorf("%s: %w", listName(was), err)
			}
		}
		for _, address := range all {
			becomes, ready, err := o.addressJSON(address, was)
			if err != nil {
				return nil, err
			}
			if becomes != nil {
				lists[ready] = append(lists[ready], becomes)
			}
			changed = changed || becomes == nil || ready != was || string(becomes) != string(address)
		}
	}
	if !changed {
		return raw, nil
	}
	o.changed = true
	if len(lists[true])+len(lists[false]) == 0 {
		return nil, nil
	}
	for _, ready := range []bool{true, false} {
		delete(subset, listName(ready))
		if len(lists[ready]) > 0 {
			if err := put(subset, listName(ready), lists[ready]); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(subset)
}

// listName is the member of a subset that has the addresses that are ready, or those that are not.
func listName(ready bool) string {
	if ready {
		return "addresses"
	}
	return "notReadyAddresses"
}

func (o *object) addressJSON(raw json.RawMessage, was bool) (becomes json.RawMessage, ready bool, err error) {
	var had corev1.EndpointAddress
	if err := json.Unmarshal(raw, &had); err != nil {
		return nil, false, err
	}
	e := endpoint{lone: true, serving: was, address: []byte(had.IP)}
	if had.NodeName != nil {
		e.node = []byte(*had.NodeName)
	}
	if had.TargetRef != nil {
		e.refersTo(*had.TargetRef)
	}
	v, known := o.judge(e)
	switch {
	case !known:
		return raw, was, nil
	case v.leaves(o.tolerant):
		return nil, false, nil
	case v.address == "":
		return raw, v.ready, nil
	}
	var object jsonObject
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, false, err
	}
	if err := put(object, "ip", v.address); err != nil {
		return nil, false, err
	}
	becomes, err = json.Marshal(object)
	return becomes, v.ready, err
}
