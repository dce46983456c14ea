// Package deploy holds the manifests that a cluster needs, for programs that apply them.
package deploy

import (
	"bytes"
	"embed"
	"io/fs"
	"path"
)

//go:embed charts/yurt-coordinator/files/rbac/*.yaml
var controllerRBAC embed.FS

// ControllerRBAC returns the rights of coordinator-controller and coordinator-approver with all of their controllers on: their
// ServiceAccounts and roles, as YAML documents. The chart has the same files.
func ControllerRBAC() []byte {
	const dir = "charts/yurt-coordinator/files/rbac"
	var all [][]byte
	entries, err := fs.ReadDir(controllerRBAC, dir)
	for _, e := range entries {
		content, failed := controllerRBAC.ReadFile(path.Join(dir, e.Name()))
		if failed != nil {
			err = failed
		}
		all = append(all, content)
	}
	if err != nil {
		panic(err) // they are embedded
	}
	return bytes.Join(all, []byte("\n---\n"))
}

// HoldEvictions is the admission policy that keeps kube-controller-manager from evicting Pods of Nodes that ask for it.
// HoldDuration is the policy that refuses a hold's duration that can't be read.
var (
	//go:embed charts/yurt-coordinator/files/policies/hold-evictions.yaml
	HoldEvictions []byte
	//go:embed charts/yurt-coordinator/files/policies/hold-duration.yaml
	HoldDuration []byte
)

// YurtCoordinators is the CustomResourceDefinition of the kind YurtCoordinator.
//
//go:embed charts/yurt-coordinator/files/crds/apps.openyurt.io_yurtcoordinators.yaml
var YurtCoordinators []byte
