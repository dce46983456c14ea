package access

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"yurtcoordinator/internal/edge"
)

// These are the rights of the pool's callers, besides those that the Node authorizer gives a node on its own objects. Of these
// objects, asHubs leaves a node only its Lease in kube-node-lease (get, create, update, patch, delete; never list). The Node
// authorizer has Kubernetes' rules compiled in, so the bootstrap role system:node is not needed here. Of the other bootstrap
// roles a node used only discovery, which is here.
//
// Operators can read only resources that are listed here one by one. Secrets are among them only if NewRights is told so. A
// resource that is added to the served groups later is not readable until somebody lists it.
//
// The rights have the form and the meaning of Kubernetes' RBAC, but they are no objects: nobody changes them while a coordinator
// runs.

const rolePrefix = "openyurt:"

var (
	readVerbs = []string{"get", "list", "watch"}
	systems   = []string{edge.NamespaceSystem, corev1.NamespaceNodeLease}
)

// NewRights returns RBAC with the roles below. If secrets is set, operators may read Secrets.
func NewRights(secrets bool) *rbac.RBACAuthorizer {
	// It is no more than lists, whatever its name says.
	_, fixed := validation.NewTestRuleResolver(roles(), roleBindings(), clusterRoles(secrets), clusterRoleBindings())
	return rbac.New(fixed, fixed, fixed, fixed)
}

func clusterRoles(secrets bool) []*rbacv1.ClusterRole {
	operator := operatorRole()
	if secrets {
		operator.Rules = append(operator.Rules, rule(readVerbs, "", "secrets"))
	}
	return []*rbacv1.ClusterRole{
		clusterRole("discovery", rbacv1.PolicyRule{
			Verbs: []string{"get"},
			NonResourceURLs: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*",
				"/version", "/version/", "/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"},
		}),
		clusterRole("pool-resources",
			rule(readVerbs, "", "endpoints"),
			rule(readVerbs, "discovery.k8s.io", "endpointslices")),
		// The mirror decides which node may post, by the election Lease.
		clusterRole("mirror", rbacv1.PolicyRule{
			Verbs: []string{"get", "post"}, NonResourceURLs: []string{edge.PathMirror, edge.PathMirror + "/*"},
		}),
		// The claims decide whose objects a node may push.
		clusterRole("own-objects", rbacv1.PolicyRule{
			Verbs: []string{"get", "post"}, NonResourceURLs: []string{edge.PathOwn, edge.PathOwn + "/*"},
		}),
		// Of Pods of other nodes a node hears no more than what its endpoints need.
		clusterRole("presence", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{edge.PathState}}),
		// For a collector on site. /metrics/* would add no metric.
		clusterRole("metrics", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}),
		viewerRole(),
		operator,
	}
}

// viewerRole is for people who only look. Of Pods they see what Shown leaves.
func viewerRole() *rbacv1.ClusterRole {
	return clusterRole("viewer",
		rule(readVerbs, "", "events", "namespaces", "nodes", "pods"),
		rule(readVerbs, "coordination.k8s.io", "leases"),
		rule(readVerbs, edge.NodePools.Group, edge.NodePools.Resource), // the pool's own
		// The page shows Nodes, Pods, Leases and Events, all of which are above.
		rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{edge.PathPage, edge.PathPage + "/*"}},
	)
}

// operatorRole is what operators may besides what viewers may. It has no Secrets; only --own-secrets adds them.
func operatorRole() *rbacv1.ClusterRole {
	return clusterRole("operator",
		rule(readVerbs, "", "configmaps", "endpoints", "nodes/status", "pods/status", "pods/log", "serviceaccounts", "services",
			"services/status"),
		rule(readVerbs, "discovery.k8s.io", "endpointslices"),
		rule([]string{"get", "list"}, "metrics.k8s.io", "nodes", "pods"), // kubectl top
		// Not into every Pod: see streams. kubectl asks for a stream by GET over WebSocket and by POST over SPDY.
		rule([]string{"get", "create"}, "", "pods/exec", "pods/attach", "pods/portforward"),
		// For kubectl auth can-i and whoami, which store nothing.
		rule([]string{"create"}, "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
		rule([]string{"create"}, "authentication.k8s.io", "selfsubjectreviews"),
		rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/metrics/*", edge.PathMirror}},
		// Whoever has a link sees the page alone.
		rbacv1.PolicyRule{Verbs: []string{"get", "post", "delete"}, NonResourceURLs: []string{edge.PathLinks}},
	)
}

func clusterRoleBindings() []*rbacv1.ClusterRoleBinding {
	return []*rbacv1.ClusterRoleBinding{
		clusterRoleBinding("discovery", user.AllAuthenticated),
		clusterRoleBinding("pool-resources", edge.GroupNodes),
		clusterRoleBinding("mirror", edge.GroupNodes),
		clusterRoleBinding("own-objects", edge.GroupNodes),
		clusterRoleBinding("presence", edge.GroupNodes),
		clusterRoleBinding("metrics", edge.GroupMetrics),
		clusterRoleBinding("viewer", edge.GroupViewers, edge.GroupOperators, edge.GroupDebuggers),
		clusterRoleBinding("operator", edge.GroupOperators, edge.GroupDebuggers),
	}
}

func roles() []*rbacv1.Role {
	return []*rbacv1.Role{
		// The leader watches all of them; each node writes its own by the Node authorizer.
		role(corev1.NamespaceNodeLease, "heartbeats", rule(readVerbs, "coordination.k8s.io", "leases")),
		// There is no right to create, because RBAC can't limit create to a name. These Leases are made at the start instead.
		role(edge.NamespaceSystem, "campaign", rbacv1.PolicyRule{
			Verbs:         []string{"get", "list", "watch", "update", "patch"},
			APIGroups:     []string{"coordination.k8s.io"},
			Resources:     []string{"leases"},
			ResourceNames: poolLeases,
		}),
	}
}

func roleBindings() []*rbacv1.RoleBinding {
	return []*rbacv1.RoleBinding{
		roleBinding(corev1.NamespaceNodeLease, "heartbeats", edge.GroupNodes),
		roleBinding(edge.NamespaceSystem, "campaign", edge.GroupNodes),
	}
}

func rule(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: rolePrefix + name}, Rules: rules}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rolePrefix + name}, Rules: rules}
}

func clusterRoleBinding(name string, groups ...string) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: rolePrefix + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rolePrefix + name},
	}
	for _, g := range groups {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: g})
	}
	return binding
}

func roleBinding(namespace, name, group string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rolePrefix + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: rolePrefix + name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}
}
