// Package v1alpha1 has YurtHubConfiguration: the settings of a hub, as a file on its node gives them. HubSettings are those
// that all hubs of a pool can share. The kind PoolSettings sets them once for the pool.
//
// Each field is also a flag of yurthub with the same letters: cacheAgents is --cache-agents. The only exception is verbosity,
// whose flag is --v as in all programs of Kubernetes.
//
// +kubebuilder:object:generate=true
// +groupName=hub.openyurt.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "hub.openyurt.io", Version: "v1alpha1"}

// Kind is the kind of a YurtHubConfiguration.
const Kind = "YurtHubConfiguration"

// AddToScheme registers the kinds in this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &YurtHubConfiguration{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
