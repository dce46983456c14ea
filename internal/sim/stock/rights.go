package stock

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"yurtcoordinator/internal/sim/model"
)

// Authorizer returns kube-apiserver's own authorizers, with the data of informers: the Node authorizer, and RBAC. The graph of
// the Node authorizer stays empty. It serves only for what Pods use, and the code that fills it waits in a way that simulated
// time does not know.
func Authorizer(of informers.SharedInformerFactory) authorizer.Authorizer {
	rights := of.Rbac().V1()
	return union.New(
		node.NewAuthorizer(node.NewGraph(), nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules()),
		rbac.New(
			&rbac.RoleGetter{Lister: rights.Roles().Lister()}, &rbac.RoleBindingLister{Lister: rights.RoleBindings().Lister()},
			&rbac.ClusterRoleGetter{Lister: rights.ClusterRoles().Lister()},
			&rbac.ClusterRoleBindingLister{Lister: rights.ClusterRoleBindings().Lister()}))
}

// Admission makes kube-apiserver's plugins, which need internal types, usable for a model.Server.
func Admission(plugins admission.Interface) admission.Interface {
	return model.Internal(legacyscheme.Scheme, plugins)
}
