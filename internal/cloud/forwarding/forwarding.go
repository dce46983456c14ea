// Package forwarding grants, in RBAC, the right to forward heartbeats to the cloud. See docs/adr/0004-forwarding-identity.md.
//
// Each pool has one identity, the user edge.PoolName.ForwardingUser, for which nobody has a key. The pool's nodes may
// impersonate it. It may read, update and create the Leases of the pool's nodes, and those in which the pool's leaders report.
// The rules name each node and each Lease; everything else is refused.
package forwarding

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// impersonatorPrefix begins the names of two objects: the Role that lets nodes impersonate the forwarder, and its binding. The
// other two objects have the forwarder's own name.
const impersonatorPrefix = "impersonator-"

// Objects returns the RBAC objects of a pool with these nodes, all in kube-node-lease. They are a Role to impersonate the
// pool's forwarding user, its binding to the nodes' users, a Role on the Leases, and its binding to the forwarding user. The
// order of nodes and duplicates make no difference. All four objects are always returned. So when they are applied, a node that
// has left the pool loses its rights. For a pool without nodes they grant nothing.
//
// From Kubernetes 1.36 on, impersonation can be constrained to the requests that forwarding needs. Otherwise a node that
// impersonates the forwarder is also in the groups of all ServiceAccounts, and gets whatever these groups are granted. A policy
// of the chart then refuses the node's writes, but nothing refuses its reads.
func Objects(pool edge.PoolName, nodes []edge.NodeName, constrained bool) []client.Object {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	// An empty name in a rule would match requests that name nothing, such as a list.
	nodes = slices.DeleteFunc(nodes, func(n edge.NodeName) bool { return n == "" })

	forwarder := pool.Forwarder()
	impersonation, mayImpersonate := pair(pool, impersonatorPrefix+forwarder)
	leases, mayWrite := pair(pool, forwarder)
	// A rule with an empty list of names would match all names.
	if len(nodes) > 0 {
		written := names(nodes)
		for _, slot := range edge.Slots() {
			written = append(written, pool.ReportLease(slot))
		}
		impersonation.Rules = impersonate(forwarder, written, constrained)
		mayImpersonate.Subjects = users(nodes)
		leases.Rules = []rbacv1.PolicyRule{{
			APIGroups:     []string{coordinationv1.GroupName},
			Resources:     []string{"leases"},
			ResourceNames: written,
			Verbs:         []string{"create", "get", "update"},
		}}
		mayWrite.Subjects = []rbacv1.Subject{user(pool.ForwardingUser())}
	}
	return []client.Object{impersonation, mayImpersonate, leases, mayWrite}
}

// impersonate returns the rules by which nodes act as the forwarder. No rule has the verb create, because the API server checks
// the impersonation of a PUT that creates a Lease as an update.
func impersonate(forwarder string, leases []string, constrained bool) []rbacv1.PolicyRule {
	if !constrained {
		return []rbacv1.PolicyRule{{
			APIGroups:     []string{corev1.GroupName},
			Resources:     []string{"serviceaccounts"},
			ResourceNames: []string{forwarder},
			Verbs:         []string{"impersonate"},
		}}
	}
	return []rbacv1.PolicyRule{{
		APIGroups:     []string{authenticationv1.GroupName},
		Resources:     []string{"serviceaccounts"},
		ResourceNames: []string{forwarder},
		Verbs:         []string{"impersonate:serviceaccount"},
	}, {
		APIGroups:     []string{coordinationv1.GroupName},
		Resources:     []string{"leases"},
		ResourceNames: leases,
		Verbs:         []string{"impersonate-on:serviceaccount:get", "impersonate-on:serviceaccount:update"},
	}}
}

// pair returns a Role that grants nothing, and its binding to nobody.
func pair(pool edge.PoolName, name string) (*rbacv1.Role, *rbacv1.RoleBinding) {
	meta := metav1.ObjectMeta{
		Namespace: corev1.NamespaceNodeLease, Name: name, Labels: map[string]string{edge.LabelNodePool: string(pool)},
	}
	return &rbacv1.Role{TypeMeta: typeMeta("Role"), ObjectMeta: meta}, &rbacv1.RoleBinding{
		TypeMeta: typeMeta("RoleBinding"), ObjectMeta: *meta.DeepCopy(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}
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
