// Package v1beta1 has the YurtAppSet: one workload in each of several pools; and the NodePool under its older version.
//
// Names and fields are OpenYurt's, so that what people have written for it means the same here.
//
// +kubebuilder:object:generate=true
// +groupName=apps.openyurt.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "apps.openyurt.io", Version: "v1beta1"}

// AddToScheme teaches a scheme the kinds in this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &YurtAppSet{}, &YurtAppSetList{}, &NodePool{}, &NodePoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
