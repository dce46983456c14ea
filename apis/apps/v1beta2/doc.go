// Package v1beta2 has the NodePool: the nodes of one site.
//
// Names and fields are OpenYurt's, so that objects written for OpenYurt mean the same here.
//
// +kubebuilder:object:generate=true
// +groupName=apps.openyurt.io
package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "apps.openyurt.io", Version: "v1beta2"}

// AddToScheme registers the kinds in this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodePool{}, &NodePoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
