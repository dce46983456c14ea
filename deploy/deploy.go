// Package deploy holds the manifests that a cluster needs, for programs that apply them.
package deploy

import _ "embed"

// ControllerRBAC is what coordinator-controller may do: a ServiceAccount with its roles, as YAML documents. The chart has
// the same file.
//
//go:embed charts/yurt-coordinator/files/rbac.yaml
var ControllerRBAC []byte

// HoldEvictions is the policy that keeps kube-controller-manager from evicting Pods of Nodes that say so, HoldDuration the
// one that refuses durations of a hold that can't be read.
var (
	//go:embed charts/yurt-coordinator/files/policies/hold-evictions.yaml
	HoldEvictions []byte
	//go:embed charts/yurt-coordinator/files/policies/hold-duration.yaml
	HoldDuration []byte
)
