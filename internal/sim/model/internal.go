package model

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// Internal adapts admission plugins to a Server. The plugins need internal types, as Kubernetes' own do, but a Server has objects
// of the served versions. The scheme converts between the two.
func Internal(scheme *runtime.Scheme, plugins admission.Interface) admission.Interface {
	return &internal{plugins, scheme}
}

type internal struct {
	admission.Interface
	scheme *runtime.Scheme
}

var (
	_ admission.MutationInterface   = &internal{}
	_ admission.ValidationInterface = &internal{}
)

// Admit implements admission.MutationInterface.
func (i *internal) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	m, ok := i.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	in, err := i.attributes(a)
	if err != nil {
		return err
	}
	if err := m.Admit(ctx, in, o); err != nil || a.GetObject() == nil {
		return err
	}
	return i.scheme.Convert(in.GetObject(), a.GetObject(), nil)
}

// Validate implements admission.ValidationInterface.
func (i *internal) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	v, ok := i.Interface.(admission.ValidationInterface)
	if !ok {
		return nil
	}
	in, err := i.attributes(a)
	if err != nil {
		return err
	}
	return v.Validate(ctx, in, o)
}

// attributes returns the same attributes with objects of internal types.
func (i *internal) attributes(a admission.Attributes) (admission.Attributes, error) {
	convert := func(o runtime.Object) (runtime.Object, error) {
		if o == nil {
			return nil, nil
		}
		return i.scheme.ConvertToVersion(o, runtime.InternalGroupVersioner)
	}
	next, err := convert(a.GetObject())
	if err != nil {
		return nil, err
	}
	was, err := convert(a.GetOldObject())
	if err != nil {
		return nil, err
	}
	return admission.NewAttributesRecord(next, was, a.GetKind(), a.GetNamespace(), a.GetName(), a.GetResource(),
		a.GetSubresource(), a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo()), nil
}
