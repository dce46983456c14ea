package access

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
)

// usedByPods are the resources that notForNodes refuses.
var usedByPods = []string{"configmaps", "secrets", "serviceaccounts"}

// notForNodes refuses nodes ConfigMaps, Secrets and ServiceAccounts. The Node authorizer would let a node read what its
// Pods refer to. But here, where nobody has scheduled the Pods, a node itself says which Pods it has, and could invent
// a Pod to read what other nodes have pushed. A node gets its own objects from the cloud and from its disk.
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
