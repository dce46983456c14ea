package share

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"yurtcoordinator/internal/edge"
)

// rights maps the subresources of nodes that a coordinator may use to the verbs for them. For everything that has no subresource
// of its own, such as exec, attach, port-forward and logs of containers, kubelet checks the subresource "proxy". If kubelet
// checks two subresources, as for /pods, one right is enough.
var rights = map[string][]string{
	"proxy":   {"create", "get"},
	"metrics": {"get"}, // kubectl top
}

// Word is what the cloud has said of the pool's coordinator.
type Word struct {
	// Known says that the cloud has let this node read the pool's ConfigMap. Only the pool's nodes may read that, so the node is
	// in the pool.
	Known bool
	// Clients are the credential ids of the valid certificates.
	Clients []string
}

// reviewKubelet decides an access review of this node's kubelet. If the first result is false, the user is no coordinator, and
// the cloud must decide. Otherwise the second is the reason for a refusal; "" means allowed.
func reviewKubelet(
	spec authorizationv1.SubjectAccessReviewSpec, node edge.NodeName, pool edge.PoolName, w Word,
) (about bool, why string) {
	if !strings.HasPrefix(spec.User, edge.CoordinatorUsers) {
		return false, ""
	}
	a := spec.ResourceAttributes
	ids := spec.Extra[user.CredentialIDKey]
	switch {
	case pool == "" || !w.Known:
		return true, "the cloud has not shown this node its pool's coordinator, or it has none"
	case spec.User != pool.CoordinatorUser():
		return true, fmt.Sprintf("it is not the coordinator of pool %s", pool)
	case slices.ContainsFunc(spec.Groups, func(g string) bool { return g != user.AllAuthenticated }):
		return true, "a coordinator is in no group"
	case len(ids) != 1 || !slices.Contains(w.Clients, ids[0]):
		return true, "its certificate is not among those that the cloud has told this node; was it withdrawn, or is it newer " +
			"than what this node has heard?"
	case a == nil || spec.NonResourceAttributes != nil || a.Group != "" || a.Resource != "nodes" || a.Namespace != "" ||
		a.Name != string(node) || node == "" || !slices.Contains(rights[a.Subresource], a.Verb):
		return true, "a coordinator may use logs, exec, attach, port-forward and metrics of the asking kubelet, and nothing else"
	}
	return true, ""
}
