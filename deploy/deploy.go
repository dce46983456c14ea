// Package deploy holds the manifests that a cluster needs, for programs that apply them.
package deploy

import _ "embed"

// ControllerRBAC is what coordinator-controller may do: a ServiceAccount with its roles, as YAML documents. The chart has
// the same file.
//
//go:embed charts/yurt-coordinator/files/rbac.yaml
var ControllerRBAC []byte
