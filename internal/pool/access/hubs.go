package access

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"

	"yurtcoordinator/internal/edge"
)

// hubsUse lists the resources that hubs use in Kubernetes' API. asHubs lets a node use no other resource. RBAC and the Node
// authorizer decide what a node may do to the objects of these resources.
var hubsUse = []use{
	{coordinationv1.GroupName, "leases", corev1.NamespaceNodeLease}, // heartbeats
	{coordinationv1.GroupName, "leases", edge.NamespaceSystem},      // the pool's own, see RBAC
	{corev1.GroupName, "endpoints", anyNamespace},
	{discoveryv1.GroupName, "endpointslices", anyNamespace},
}

const anyNamespace = "*"

type use struct{ group, resource, namespace string }

func (u use) includes(a authorizer.Attributes) bool {
	return u.group == a.GetAPIGroup() && u.resource == a.GetResource() && a.GetSubresource() == "" &&
		(u.namespace == anyNamespace || u.namespace == a.GetNamespace())
}

// asHubs lets nodes do nothing in Kubernetes' API that hubs don't do. The Node authorizer allows a node more: to write Events in
// every namespace, its Node, mirror Pods and CSINodes. None of these has a bound, so one node could fill etcd, which ends the
// coordinator. The Node authorizer also lets a node read what its Pods refer to. But here a node itself says which Pods it has,
// and could invent a Pod to read what other nodes have pushed.
type asHubs struct {
	nodes nodeidentifier.NodeIdentifier
}

func newAsHubs() asHubs { return asHubs{nodeidentifier.NewDefaultNodeIdentifier()} }

// Authorize implements authorizer.Authorizer.
func (h asHubs) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if _, isNode := h.nodes.NodeIdentity(a.GetUser()); !isNode || !a.IsResourceRequest() {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if slices.ContainsFunc(hubsUse, func(u use) bool { return u.includes(a) }) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return refuse("a node does here what its hub does, and nothing else: read and write it in the cloud")
}
