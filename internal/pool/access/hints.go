package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"yurtcoordinator/internal/edge"
)

// Hints say what to do instead. kube-apiserver itself says who may not do what.
const (
	HintKubeconfig = "each pool's operators have a kubeconfig for its coordinator, in the cloud: Secret " + edge.NamespaceSystem +
		"/yurt-coordinator-POOL-kubeconfig"
	HintChange  = "a pool's coordinator only shows objects; change them in the cloud"
	HintSecrets = "Secrets are read in the cloud; here only if the coordinator and the hubs have --own-secrets"
	HintSelf    = "impersonation does not work here; leave out --as and --as-group"
	HintProxy   = "use kubectl logs, exec, attach, port-forward or top, which do not need it"
	HintDebug   = "that takes a person's certificate in the group " + edge.GroupDebuggers
	HintViewer  = "a viewer's certificate only looks; more takes one in the group " + edge.GroupOperators
	hintOther   = "it is not shown here; ask the cloud"
	HintOpenAPI = HintChange + ", and ask there for kubectl explain"
)

// hints adds to a refusal what to do instead. It allows nothing, and stands behind all authorizers that do.
type hints struct{}

// Authorize implements authorizer.Authorizer.
func (hints) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, hint(a), nil
}

// hint returns the hint for a refused caller. Programs of nodes get none.
func hint(a authorizer.Attributes) string {
	caller := a.GetUser()
	if caller == nil || !a.IsResourceRequest() || slices.Contains(caller.GetGroups(), edge.GroupNodes) {
		return ""
	}
	core := a.GetAPIGroup() == ""
	switch {
	case !slices.ContainsFunc(caller.GetGroups(), edge.IsPeople):
		return HintKubeconfig
	case !slices.ContainsFunc(caller.GetGroups(), edge.IsOperators):
		return HintViewer
	case strings.HasPrefix(a.GetVerb(), "impersonate"):
		return HintSelf
	case core && a.GetResource() == "nodes" && a.GetSubresource() != "" && a.GetSubresource() != "status":
		return HintProxy
	case core && a.GetSubresource() == "proxy":
		return "use kubectl port-forward"
	case !a.IsReadOnly():
		return HintChange
	case core && a.GetResource() == "secrets":
		return HintSecrets
	default:
		return hintOther
	}
}

// NoOpenAPI refuses requests for OpenAPI documents, which kubectl uses to explain kinds and to check files before it writes. It
// does not answer 404, because kubectl does not print the text of a 404.
func NoOpenAPI(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, HintOpenAPI, http.StatusNotAcceptable)
}
