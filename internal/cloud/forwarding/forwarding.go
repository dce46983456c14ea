// Package forwarding says, in RBAC, who may forward heartbeats to the cloud. See docs/adr/0004-forwarding-identity.md.
//
// Each pool has one identity, the user edge.PoolName.ForwardingUser, which nobody has a key for. The nodes of the pool
// may impersonate it, and it may read, update and create the Leases of the pool's nodes, and the Lease by which the pool's
// leader reports. All lists name each node: what is not named is refused.
package forwarding

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// impersonatorPrefix begins the names of the ClusterRole and its binding. That of the Role is the user's own name.
const impersonatorPrefix = "openyurt:impersonator:"

// Objects returns the RBAC objects of a pool with these nodes: a ClusterRole to impersonate the pool's forwarding user,
// its binding to the nodes' users, a Role on the nodes' Leases and one on the report, and their bindings to the forwarding
// user. The order of nodes and repeated ones make no difference, and all six objects are always returned, so that applying them takes
// away what a node that left could do. A pool without nodes gets objects that grant nothing.
func Objects(pool edge.PoolName, nodes []edge.NodeName) []client.Object {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	// An empty name in a list of names would match requests that name nothing, such as a list.
	nodes = slices.DeleteFunc(nodes, func(n edge.NodeName) bool { return n == "" })

	forwarder := pool.ForwardingUser()
	impersonator := impersonatorPrefix + forwarder
	labels := map[string]string{edge.LabelNodePool: string(pool)}

	clusterRole := &rbacv1.ClusterRole{
		TypeMeta:   typeMeta("ClusterRole"),
		ObjectMeta: metav1.ObjectMeta{Name: impersonator, Labels: labels},
	}
	clusterBinding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   typeMeta("ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: impersonator, Labels: labels},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: impersonator},
	}
	objects := []client.Object{clusterRole, clusterBinding}
	for _, in := range []struct {
		namespace string
		leases    []string
	}{{corev1.NamespaceNodeLease, names(nodes)}, {edge.NamespaceSystem, []string{pool.ReportLease()}}} {
		role := &rbacv1.Role{
			TypeMeta:   typeMeta("Role"),
			ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: forwarder, Labels: labels},
		}
		binding := &rbacv1.RoleBinding{
			TypeMeta:   typeMeta("RoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: forwarder, Labels: labels},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: forwarder},
		}
		// A rule with an empty list of names would be a rule for all names.
		if len(nodes) > 0 {
			role.Rules = []rbacv1.PolicyRule{{
				APIGroups:     []string{coordinationv1.GroupName},
				Resources:     []string{"leases"},
				ResourceNames: in.leases,
				Verbs:         []string{"create", "get", "update"},
			}}
			binding.Subjects = []rbacv1.Subject{user(forwarder)}
		}
		objects = append(objects, role, binding)
	}
	if len(nodes) > 0 {
		clusterRole.Rules = []rbacv1.PolicyRule{{
			APIGroups:     []string{corev1.GroupName},
			Resources:     []string{"users"},
			ResourceNames: []string{forwarder},
			Verbs:         []string{"impersonate"},
		}}
		clusterBinding.Subjects = users(nodes)
	}
	return objects
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func users(nodes []edge.NodeName) []rbacv1.Subject {
	subjects := make([]rbacv1.Subject, len(nodes))
	for i, n := range nodes {
		subjects[i] = user(n.User())
	}
	return subjects
}

func names(nodes []edge.NodeName) []string {
	all := make([]string, len(nodes))
	for i, n := range nodes {
		all[i] = string(n)
	}
	return all
}
