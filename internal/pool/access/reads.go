package access

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
)

// usedByPods are what notForNodes keeps.
var usedByPods = []string{"configmaps", "secrets", "serviceaccounts"}

// notForNodes keeps ConfigMaps, Secrets and ServiceAccounts from nodes. The Node authorizer would let a node read what the
// Pods on it refer to; but which Pods there are is the node's own word here, where nobody has scheduled them, and what other
// nodes have pushed would be open to whoever makes up a Pod that refers to it. A node has its own from the cloud, and from its
// disk.
type notForNodes struct {
	nodes nodeidentifier.NodeIdentifier
}

func newNotForNodes() notForNodes { return notForNodes{nodeidentifier.NewDefaultNodeIdentifier()} }

// Authorize implements authorizer.Authorizer.
func (d notForNodes) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !a.IsResourceRequest() || a.GetAPIGroup() != "" || !slices.Contains(usedByPods, a.GetResource()) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if _, isNode := d.nodes.NodeIdentity(a.GetUser()); !isNode {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionDeny, "a node reads them in the cloud, not here", nil
}
