package pool

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
)

// pushable are the built-in resources that a push may bring. All are namespaced.
func pushable() map[schema.GroupVersionResource]builtIn {
	core, discovery := corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion
	return map[schema.GroupVersionResource]builtIn{
		core.WithResource("endpoints"): {
			kind: core.WithKind("Endpoints"), object: func() message { return &corev1.Endpoints{} },
		},
		core.WithResource("services"): {
			kind: core.WithKind("Service"), object: func() message { return &corev1.Service{} },
		},
		discovery.WithResource("endpointslices"): {
			kind: discovery.WithKind("EndpointSlice"), object: func() message { return &discoveryv1.EndpointSlice{} },
		},
	}
}

// stored finds where kube-apiserver keeps each of pushable.
func stored(getter generic.RESTOptionsGetter) (map[schema.GroupVersionResource]builtIn, error) {
	all := pushable()
	for resource, b := range all {
		if err := b.find(getter, resource.GroupResource()); err != nil {
			return nil, err
		}
		all[resource] = b
	}
	return all, nil
}
