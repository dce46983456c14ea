package forwarding

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// TestImpersonation: a node as its pool's forwarder, at a real API server, where somebody has bound something to all
// ServiceAccounts. Constrained or not, it forwards; constrained, it can't read what they may.
func TestImpersonation(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	const users = "plain,system:node:plain-n1,1\nconstrained,system:node:constrained-n1,2\n"
	if err := os.WriteFile(tokens, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := cloudtest.Start(t, cloudtest.Flag("token-auth-file", tokens))
	admin := cloudtest.Client(t, cfg)
	err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	reader := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everybody"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"},
	}}}
	everybody := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everybody"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}},
	}
	if err := errors.Join(admin.Create(t.Context(), reader), admin.Create(t.Context(), everybody)); err != nil {
		t.Fatal(err)
	}
	admins, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	serves, err := admins.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	// With the API server of another version, by KUBEBUILDER_ASSETS, this is what a cloud of that version does.
	older := version.MustParseGeneric(serves.String()).LessThan(version.MustParseGeneric("1.36"))
	for pool, constrained := range map[edge.PoolName]bool{"plain": false, "constrained": true} {
		first, second := string(pool)+"-n1", string(pool)+"-n2"
		for _, o := range Objects(pool, []edge.NodeName{edge.NodeName(first), edge.NodeName(second)}, constrained) {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		node := rest.AnonymousClientConfig(cfg)
		node.BearerToken = string(pool)
		node.Impersonate.UserName = pool.ForwardingUser()
		as, err := kubernetes.NewForConfig(node)
		if err != nil {
			t.Fatal(err)
		}
		leases := as.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: second}}
		lease.Spec.HolderIdentity = &second
		if constrained && older {
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("%s: Kubernetes %s knows the verbs that constrain impersonation: %v", pool, serves, err)
			}
			continue
		}
		cloudtest.Eventually(t, string(pool)+": a forwarded heartbeat that creates the Lease", func() error {
			_, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
			return err
		})
		if _, err := leases.Get(t.Context(), second, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: read it: %v", pool, err)
		}
		if err := leases.Delete(t.Context(), second, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: delete it: %v", pool, err)
		}
		_, err = as.CoreV1().ConfigMaps(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if constrained != apierrors.IsForbidden(err) {
			t.Errorf("%s: reads all ConfigMaps, as all ServiceAccounts may: %v", pool, err)
		}
		_, err = leases.Get(t.Context(), "other", metav1.GetOptions{})
		if constrained != apierrors.IsForbidden(err) {
			t.Errorf("%s: reads another pool's Lease, as all ServiceAccounts may: %v", pool, err)
		}
	}
}
