package pool

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestDeniedUsers: a coordinator starts without the list, serves nodes, and follows the list: by the name of a user, and
// by a certificate as its own audit log names it.
func TestDeniedUsers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "denied")
	tell := func(text string) {
		t.Helper()
		tell(t, file, text)
	}
	c := start(t, func(config *Config) { config.DeniedUsersFile = file })
	ctx := t.Context()
	alice, anew := c.as(t, pooltest.Operator()), c.as(t, pooltest.Operator())
	lists := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	}
	becomes := func(what string, client kubernetes.Interface, says string) {
		t.Helper()
		allowed(t, what, eventually(ctx, func() error {
			switch err := lists(client); {
			case says == "":
				return err
			case err == nil:
				return errors.New("it may read Pods")
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says):
				return err
			}
			return nil
		}))
	}

	becomes("an operator, without the list", alice, "does not know yet whose certificates were withdrawn")
	_, err := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases("kube-node-lease").Create(ctx, heartbeat("n1"),
		metav1.CreateOptions{})
	allowed(t, "a node's heartbeat, without the list", err)

	tell("")
	becomes("an operator", alice, "")
	tell("alice\n")
	becomes("a denied user", alice, "the certificates of this user were withdrawn")
	becomes("another of that name", anew, "the certificates of this user were withdrawn")

	const withdrawn = "the certificates of this user were withdrawn"
	first := c.audited(t, "alice", refused(403, "alice", "list", "/api/v1/pods", withdrawn)).User.Extra[user.CredentialIDKey]
	other := c.audited(t, "the other alice", func(e auditv1.Event) bool {
		return refused(403, "alice", "list", "/api/v1/pods", withdrawn)(e) &&
			!slices.Equal(e.User.Extra[user.CredentialIDKey], first)
	})
	tell(other.User.Extra[user.CredentialIDKey][0] + "\n")
	becomes("the other certificate of a user", alice, "")
	becomes("a denied certificate", anew, "this certificate was withdrawn")
	tell("")
	becomes("whoever is on the list no more", anew, "")
}
