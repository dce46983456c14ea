package stock

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"yurtcoordinator/internal/sim/model"
)

// Authorizer returns kube-apiserver's Node authorizer with an empty graph. The graph would say only what the Pods of a node use.
// The code that fills it waits for a channel from outside the bubble (wait.NeverStop), which would stop the bubble's time.
func Authorizer() authorizer.Authorizer {
	return node.NewAuthorizer(node.NewGraph(), nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
}

// Admission makes kube-apiserver's plugins, which need internal types, usable for a model.Server.
func Admission(plugins admission.Interface) admission.Interface {
	return model.Internal(legacyscheme.Scheme, plugins)
}
