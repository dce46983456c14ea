package replica

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Field labels that every resource has.
const (
	labelName      = "metadata.name"
	labelNamespace = "metadata.namespace"
)

// clusterIP and serviceType are the additional field labels of Services, as at an API server. kube-proxy and kubelet select
// Services by spec.clusterIP.
const clusterIP, serviceType = "spec.clusterIP", "spec.type"

func fieldsOfService(t stream.Type, raw []byte) (fields.Set, error) {
	object, err := decode(t, raw)
	if err != nil {
		return nil, err
	}
	service, ok := object.(*corev1.Service)
	if !ok {
		return nil, fmt.Errorf("a %T among Services", object)
	}
	return fields.Set{clusterIP: service.Spec.ClusterIP, serviceType: string(service.Spec.Type)}, nil
}

// options are the options of a list or a watch.
type options struct {
	internalversion.ListOptions
	// fieldsOf returns the fields of an object besides its key, if the field selector asks for any; else it is nil.
	fieldsOf func(t stream.Type, raw []byte) (fields.Set, error)
	// revision is the ResourceVersion as a number, and 0 for "" and "0". If a view has made the ResourceVersion, revision is the
	// object's own revision in the cloud.
	revision edge.Revision
	viewed   bool // it is one that a view has shown
	// namespace and name are the only ones that can match; empty means any.
	namespace, name string
	// selected and elsewhere are as Request.Selected and Request.Elsewhere.
	selected, elsewhere bool
}

// optionsOf reads and checks the options of a list or a watch, with the defaults of an API server.
func optionsOf(r *http.Request, q Request, resource schema.GroupResource) (*options, error) {
	o := &options{namespace: q.Namespace, name: q.Name, selected: q.Selected, elsewhere: q.Elsewhere}
	err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &o.ListOptions)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.Watch = o.Watch || q.Verb == "watch"
	internalversion.SetListOptionsDefaults(&o.ListOptions, true)
	if errs := validation.ValidateListOptions(&o.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.revision, o.viewed, err = revisionOf(o.ResourceVersion); err != nil {
		if o.Watch { // so it is at an API server
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
				field.Invalid(field.NewPath("resourceVersion"), o.ResourceVersion, err.Error()),
			})
		}
		return nil, err
	}
	return o, o.readFields(resource)
}

// readFields checks the field selector, and takes from it what narrows the search.
func (o *options) readFields(resource schema.GroupResource) error {
	services := resource == schema.GroupResource{Resource: "services"}
	if o.FieldSelector == nil || o.FieldSelector.Empty() {
		o.FieldSelector = nil
		return nil
	}
	selector, err := o.FieldSelector.Transform(func(label, value string) (string, string, error) {
		if services && (label == clusterIP || label == serviceType) {
			o.fieldsOf = fieldsOfService
			return label, value, nil
		}
		return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
	})
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	o.FieldSelector = selector
	if name, ok := selector.RequiresExactMatch(labelName); ok {
		if o.name != "" && o.name != name {
			return apierrors.NewBadRequest(fmt.Sprintf("fieldSelector selects %s=%s, the path names %s", labelName, name, o.name))
		}
		o.name = name
	}
	if namespace, ok := selector.RequiresExactMatch(labelNamespace); ok && o.namespace == "" {
		o.namespace = namespace
	}
	return nil
}

// counts reports whether a page says how many objects remain. A page of a list with a selector does not.
func (o *options) counts() bool { return o.whole() && !o.selected }

// whole reports whether all objects are asked for, or all of a namespace.
func (o *options) whole() bool {
	return o.name == "" && o.FieldSelector == nil && (o.LabelSelector == nil || o.LabelSelector.Empty())
}

// holds reports whether an object of a key can match.
func (o *options) holds(k stream.Key) bool {
	switch {
	case o.namespace != "" && o.namespace != k.Namespace, o.name != "" && o.name != k.Name:
		return false
	case o.FieldSelector == nil, o.fieldsOf != nil:
		return true // or seen with the content
	default:
		return o.FieldSelector.Matches(fields.Set{labelName: k.Name, labelNamespace: k.Namespace})
	}
}

// eye is how a client sees objects: its selectors, and a view's look.
type eye struct {
	*options
	look Look // nil shows everything, verbatim
	typ  stream.Type
}

// sees returns an object as the client sees it, and whether it sees it at all.
func (e *eye) sees(o stream.Object) (stream.Object, bool, error) {
	if !e.holds(o.Key) {
		return o, false, nil
	}
	if e.look != nil {
		var visible bool
		var err error
		if o, visible, err = ShownBy(e.look, e.typ, o); err != nil || !visible {
			return o, false, err
		}
	}
	if e.fieldsOf != nil {
		set, err := e.fieldsOf(e.typ, o.Raw)
		if err != nil {
			return o, false, fmt.Errorf("%s %q: %w", e.typ.Kind, o.Key, err)
		}
		set[labelName], set[labelNamespace] = o.Key.Name, o.Key.Namespace
		if !e.FieldSelector.Matches(set) {
			return o, false, nil
		}
	}
	if e.LabelSelector == nil || e.LabelSelector.Empty() {
		return o, true, nil
	}
	set, err := stream.Labels(e.typ.Encoding, o.Raw)
	if err != nil {
		return o, false, fmt.Errorf("%s %q: %w", e.typ.Kind, o.Key, err)
	}
	return o, e.LabelSelector.Matches(set), nil
}

// event returns a change as this eye's clients see it; false means that they do not see it. If an object leaves their selection
// or view, they get a Deleted with the object's former state, at the revision of the change.
func (e *eye) event(c *change) (stream.Event, bool, error) {
	if !e.holds(c.Object.Key) {
		return stream.Event{}, false, nil
	}
	if e.look == nil && e.whole() {
		return c.Event, true, nil
	}
	at := c.Object.Revision
	var old, now stream.Object
	var saw, sees bool
	var err error
	if c.Old.Revision != 0 {
		if old, saw, err = e.sees(c.Old); err != nil {
			return stream.Event{}, false, err
		}
	}
	if c.Type != stream.Deleted {
		if now, sees, err = e.sees(c.Object); err != nil {
			return stream.Event{}, false, err
		}
	}
	switch {
	case sees && saw:
		return stream.Event{Type: stream.Modified, Object: now}, true, nil
	case sees:
		return stream.Event{Type: stream.Added, Object: now}, true, nil
	case saw:
		if c.Type == stream.Deleted && e.look == nil {
			return c.Event, true, nil
		}
		old.Revision = at
		old.Raw, err = withRevision(e.typ.Encoding, old.Raw, at)
		return stream.Event{Type: stream.Deleted, Object: old}, err == nil, err
	default:
		return stream.Event{}, false, nil
	}
}
