// Package apis has the kinds that this project adds to a cluster, one package for each group and version. It is a Go module of
// its own, which requires only Kubernetes' API modules. testdata/consumer is a program of another module that uses it.
package apis

import (
	"k8s.io/apimachinery/pkg/runtime"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
)

// AddToScheme registers every kind that this project adds to a cluster, in all versions.
func AddToScheme(s *runtime.Scheme) error {
	all := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme)
	return all.AddToScheme(s)
}
