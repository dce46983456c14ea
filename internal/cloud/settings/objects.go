package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"

	// annotationGranted on a pool's ConfigMap is a digest of the granted rights. It saves granting the rights of a thousand
	// pools again after each start of this program.
	annotationGranted = "openyurt.io/settings-grants"
)

// ownedMeta is that of all objects of a pool. They belong to its NodePool, and go with it also if nobody runs this controller.
func ownedMeta(pool *v1beta2.NodePool) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: edge.NamespaceSystem, Name: edge.PoolName(pool.Name).SettingsConfigMap(),
		Labels: map[string]string{labelManagedBy: FieldOwner}, // the pool's own label means: made for its coordinator
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1beta2.GroupVersion.String(), Kind: "NodePool", Name: pool.Name, UID: pool.UID,
		}},
	}
}

// configMap returns the ConfigMap that tells a pool's hubs t.
func configMap(pool *v1beta2.NodePool, t told, r record, granted string) (*corev1.ConfigMap, error) {
	history, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	m := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: ownedMeta(pool),
		Data: map[string]string{
			edge.SettingsGeneration:    strconv.FormatInt(r.newest().Generation, 10),
			edge.SettingsConfiguration: t.Configuration,
			edge.SettingsFrom:          r.newest().text(),
		},
	}
	m.Annotations = map[string]string{annotationHistory: string(history), annotationGranted: granted}
	return m, nil
}

// grants returns the right of these nodes to read that ConfigMap. It names each node; without nodes it is nobody's.
func grants(pool *v1beta2.NodePool, nodes []edge.NodeName) []client.Object {
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	role := &rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: ownedMeta(pool)}
	role.Rules = []rbacv1.PolicyRule{{
		APIGroups: []string{corev1.GroupName}, Resources: []string{"configmaps"}, ResourceNames: []string{role.Name},
		Verbs: []string{"get", "list", "watch"},
	}}
	binding := &rbacv1.RoleBinding{
		TypeMeta: kind("RoleBinding"), ObjectMeta: ownedMeta(pool),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	for _, n := range nodes {
		binding.Subjects = append(binding.Subjects,
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: n.User()})
	}
	return []client.Object{role, binding}
}

// belongings returns all objects of a pool for deletion.
func belongings(pool string) []client.Object {
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	return append(grants(p, nil), &corev1.ConfigMap{ObjectMeta: ownedMeta(p)})
}

func digest(v any) (string, error) {
	content, err := json.Marshal(v)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16]), err
}
