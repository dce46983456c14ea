package kit

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MakeAccount makes a ServiceAccount in the scenarios' namespace.
func (t *T) MakeAccount(name string) {
	_, err := t.Cloud.CoreV1().ServiceAccounts(Namespace).Create(t.Ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	t.Must(err)
}

// Token returns a new token of a ServiceAccount of the scenarios' namespace.
func (t *T) Token(account string) string {
	made, err := t.Cloud.CoreV1().ServiceAccounts(Namespace).CreateToken(t.Ctx, account, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	t.Must(err)
	return made.Status.Token
}

// Account is a ServiceAccount of the scenarios' namespace, as rights are given to it.
func Account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: name}
}

// Reads is the right to get, list and watch resources of a group.
func Reads(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list", "watch"}}
}

// Grant gives rights in all namespaces, by a ClusterRole and a binding of that name.
func (t *T) Grant(name string, rules []rbacv1.PolicyRule, to ...rbacv1.Subject) {
	_, err := t.Cloud.RbacV1().ClusterRoles().Create(t.Ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	t.Must(err)
	t.Bind(name, name, to...)
}

// Bind gives the rights of a ClusterRole in all namespaces.
func (t *T) Bind(name, role string, to ...rbacv1.Subject) {
	_, err := t.Cloud.RbacV1().ClusterRoleBindings().Create(t.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: to,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	t.Must(err)
}
