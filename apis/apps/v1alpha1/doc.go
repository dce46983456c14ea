// Package v1alpha1 has the YurtCoordinator, which asks for a coordinator in a pool, and PoolSettings, the settings of pools.
// The status of each says how far it has been carried out.
//
// The YurtCoordinator's names and fields are OpenYurt's, so that objects written for OpenYurt mean the same here.
//
// +kubebuilder:object:generate=true
// +groupName=apps.openyurt.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "apps.openyurt.io", Version: "v1alpha1"}

// AddToScheme registers the kinds in this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &YurtCoordinator{}, &YurtCoordinatorList{}, &PoolSettings{}, &PoolSettingsList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
