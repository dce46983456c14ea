// Package v1beta1 has the YurtAppSet, which runs one workload in each of several pools. It also has the NodePool in its older
// version.
//
// Names and fields are OpenYurt's, so that objects written for OpenYurt mean the same here.
//
// +kubebuilder:object:generate=true
// +groupName=apps.openyurt.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "apps.openyurt.io", Version: "v1beta1"}

// AddToScheme registers the kinds in this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &YurtAppSet{}, &YurtAppSetList{}, &NodePool{}, &NodePoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
