package views

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

// managedBy names the controller whose EndpointSlices Known.show changes. Kubernetes' API packages do not define the name.
const managedBy = "endpointslice-controller.k8s.io"

// object is an EndpointSlice or Endpoints while it is changed.
type object struct {
	stream.Object
	known    *Known
	tolerant bool
	// pods are the known Pods of the object's endpoints. A Pod of several consecutive endpoints is there once.
	pods []*KnownPod
	// changed says that some endpoint is shown differently.
	changed bool
}

// show returns an object as the pool knows it, and the known Pods of its endpoints. It returns o.Raw itself if nothing changes,
// or if it can't read the object.
func (k *Known) show(t stream.Type, o stream.Object) (raw []byte, pods []*KnownPod) {
	service := o.Key
	slice := t.Kind == "EndpointSlice" && t.Group == discoveryv1.GroupName
	switch {
	case slice:
		labels, err := stream.Labels(stream.Protobuf, o.Raw)
		if err != nil || labels[discoveryv1.LabelManagedBy] != managedBy {
			return o.Raw, nil
		}
		service.Name = labels[discoveryv1.LabelServiceName]
	case t.Kind == "Endpoints" && t.Group == corev1.GroupName:
	default:
		return o.Raw, nil
	}
	_, tolerant := k.Unready[service]
	is := &object{Object: o, known: k, tolerant: tolerant}
	change, field := is.subset, edit.EndpointsSubsets
	if slice {
		change, field = is.endpoint, edit.SliceEndpoints
	}
	becomes, err := edit.Change(o.Raw, change, field)
	if err != nil || !is.changed {
		return o.Raw, is.pods
	}
	return becomes, is.pods
}

// judge returns how to show an endpoint; false means unchanged.
func (o *object) judge(e endpoint) (verdict, bool) {
	var pod *KnownPod
	if len(e.uid) > 0 {
		pod = o.known.pod(e)
	}
	if pod != nil && (len(o.pods) == 0 || o.pods[len(o.pods)-1] != pod) {
		o.pods = append(o.pods, pod)
	}
	return o.known.judge(e, pod, o.Revision, o.tolerant)
}

// endpoint returns an endpoint of a slice as it is shown; nil means that it is dropped.
func (o *object) endpoint(f edit.Field) ([]byte, error) {
	var e endpoint
	var conditions []byte
	addresses := 0
	for part, err := range edit.Fields(f.Value) {
		if err != nil {
			return nil, err
		}
		switch part.Number {
		case edit.EndpointAddresses:
			e.address = part.Value
			addresses++
		case edit.EndpointConditions:
			conditions = part.Value
		case edit.EndpointTargetRef:
			if err := e.refer(part.Value); err != nil {
				return nil, err
			}
		case edit.EndpointNodeName:
			e.node = part.Value
		}
	}
	had, err := read(conditions)
	if err != nil {
		return nil, err
	}
	e.lone, e.serving, e.terminating = addresses == 1, had.serving, had.terminating
	v, known := o.judge(e)
	if !known || !v.gone && v.address == "" && v.conditions == had {
		return f.Value, nil
	}
	o.changed = true
	if v.gone {
		return nil, nil
	}
	return v.write(f.Value)
}

// write returns a slice's endpoint with the verdict applied.
func (v verdict) write(raw []byte) ([]byte, error) {
	as := discoveryv1.EndpointConditions{Ready: &v.ready, Serving: &v.serving, Terminating: &v.terminating}
	becomes, err := as.Marshal()
	if err != nil {
		return nil, err
	}
	if raw, err = edit.Set(raw, edit.EndpointConditions, becomes); err != nil || v.address == "" {
		return raw, err
	}
	return edit.Set(raw, edit.EndpointAddresses, []byte(v.address))
}

// refer records an endpoint's target reference.
func (e *endpoint) refer(reference []byte) error {
	var kind, uid []byte
	for f, err := range edit.Fields(reference) {
		if err != nil {
			return err
		}
		switch f.Number {
		case edit.ReferenceKind:
			kind = f.Value
		case edit.ReferenceNamespace:
			e.namespace = f.Value
		case edit.ReferenceName:
			e.name = f.Value
		case edit.ReferenceUID:
			uid = f.Value
		}
	}
	if string(kind) == "Pod" {
		e.uid = uid
	}
	return nil
}

// subset returns a subset of Endpoints as it is shown; nil means that it has no address left.
func (o *object) subset(f edit.Field) ([]byte, error) {
	var ready, unready, rest []byte
	changed := false
	for part, err := range edit.Fields(f.Value) {
		if err != nil {
			return nil, err
		}
		if part.Number != edit.SubsetReady && part.Number != edit.SubsetNotReady {
			rest = append(rest, part.Raw...)
			continue
		}
		address, err := part.Bytes()
		if err != nil {
			return nil, err
		}
		becomes, isReady, err := o.address(address, part.Number == edit.SubsetReady)
		switch {
		case err != nil:
			return nil, err
		case becomes == nil:
			changed = true
			continue
		case isReady:
			ready = edit.Append(ready, edit.SubsetReady, becomes)
		default:
			unready = edit.Append(unready, edit.SubsetNotReady, becomes)
		}
		changed = changed || isReady != (part.Number == edit.SubsetReady) || !bytes.Equal(becomes, address)
	}
	o.changed = o.changed || changed
	switch {
	case !changed:
		return f.Value, nil
	case len(ready)+len(unready) == 0:
		return nil, nil
	}
	return append(append(ready, unready...), rest...), nil
}

// address returns an address of Endpoints as the view shows it, and whether it is then ready; nil means that the address is
// dropped. The parameter was says whether the cloud has it as ready.
func (o *object) address(raw []byte, was bool) (becomes []byte, ready bool, err error) {
	e := endpoint{lone: true, serving: was}
	for part, err := range edit.Fields(raw) {
		if err != nil {
			return nil, false, err
		}
		switch part.Number {
		case edit.AddressIP:
			e.address = part.Value
		case edit.AddressTargetRef:
			if err := e.refer(part.Value); err != nil {
				return nil, false, err
			}
		case edit.AddressNodeName:
			e.node = part.Value
		}
	}
	v, known := o.judge(e)
	switch {
	case !known:
		return raw, was, nil
	case v.leaves(o.tolerant):
		return nil, false, nil
	case v.address != "":
		raw, err = edit.Set(raw, edit.AddressIP, []byte(v.address))
	}
	return raw, v.ready, err
}

// leaves reports whether an address is dropped from Endpoints. Endpoints have no conditions, so they omit the addresses of Pods
// that are being deleted, unless the Service has publishNotReadyAddresses (tolerant).
func (v verdict) leaves(tolerant bool) bool { return v.gone || v.terminating && !tolerant }
