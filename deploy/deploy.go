// Package deploy holds the manifests that a cluster needs, for programs that apply them.
package deploy

import _ "embed"

// ControllerRBAC is what coordinator-controller may do: a ServiceAccount with its roles, as YAML documents.
//
//go:embed controller/rbac.yaml
var ControllerRBAC []byte
