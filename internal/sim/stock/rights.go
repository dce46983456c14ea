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

// Authorizer returns kube-apiserver's Node authorizer. Its graph stays empty. It serves only for what Pods use, and the code that
// fills it waits in a way that simulated time does not know.
func Authorizer() authorizer.Authorizer {
	return node.NewAuthorizer(node.NewGraph(), nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
}

// Admission makes kube-apiserver's plugins, which need internal types, usable for a model.Server.
func Admission(plugins admission.Interface) admission.Interface {
	return model.Internal(legacyscheme.Scheme, plugins)
}
