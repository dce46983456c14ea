package shareserver

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
)

// pushable returns the built-in resources that a push may bring. All are namespaced.
func pushable() map[schema.GroupVersionResource]BuiltIn {
	core, discovery := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion
	return map[schema.GroupVersionResource]BuiltIn{
		core.WithResource("endpoints"): {
			Kind: core.WithKind("Endpoints"), New: func() Message { return &corev1.Endpoints{} },
		},
		core.WithResource("services"): {
			Kind: core.WithKind("Service"), New: func() Message { return &corev1.Service{} },
		},
		discovery.WithResource("endpointslices"): {
			Kind: discovery.WithKind("EndpointSlice"), New: func() Message { return &discoveryv1.EndpointSlice{} },
		},
	}
}

// StoredOfPool finds where kube-apiserver keeps each of the pushable resources.
func StoredOfPool(getter generic.RESTOptionsGetter) (map[schema.GroupVersionResource]BuiltIn, error) {
	all := pushable()
	for resource, b := range all {
		if err := b.Find(getter, resource.GroupResource()); err != nil {
			return nil, err
		}
		all[resource] = b
	}
	return all, nil
}
