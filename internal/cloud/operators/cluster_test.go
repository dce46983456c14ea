package operators

import (
	"os"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/keys"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// A real API server takes an answer with the authorities behind the certificate, and the authority's Secret.
func TestHubsInACluster(t *testing.T) {
	cfg := cloudtest.Start(t)
	admin := cloudtest.Client(t, cfg)
	keysAt := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: edge.NamespaceKeys}}
	if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), keysAt)); err != nil {
		t.Fatal(err)
	}
	for _, o := range site() {
		o.SetUID("")
		status, _ := o.DeepCopyObject().(*corev1.Node)
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if node, ok := o.(*corev1.Node); ok {
			node.Status = status.Status
			if err := admin.Status().Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
	}
	asked := hubs(t, nil)
	conditions := asked.Status.Conditions
	asked.Status = certificatesv1.CertificateSigningRequestStatus{}
	asNode := cloudtest.Client(t, cloudtest.As(cfg, edge.NodeName("n1").User(), edge.GroupNodes, "system:masters"))
	if err := asNode.Create(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	conditions[0].Status, conditions[0].Reason = corev1.ConditionTrue, "Test"
	asked.Status.Conditions = conditions
	if err := admin.SubResource("approval").Update(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	signer := New(Config{Client: admin, Reader: admin, Events: &said{}, Clock: clock.RealClock{}})
	if _, err := signer.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(asked)}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(asked), asked); err != nil {
		t.Fatal(err)
	}
	got := certs.Certificates(asked.Status.Certificate)
	if len(got) != 2 || got[0].Subject.CommonName != "openyurt:hub:n1" || got[0].CheckSignatureFrom(got[1]) != nil {
		t.Fatalf("%d certificates, %+v", len(got), asked.Status.Conditions)
	}
	kept := &corev1.Secret{}
	at := client.ObjectKey{Namespace: edge.NamespaceKeys, Name: edge.PoolName("p1").HubsAuthoritySecret()}
	if err := admin.Get(t.Context(), at, kept); err != nil {
		t.Fatal(err)
	}
	if step, why, _ := keys.AuthorityIn(kept).Plan(certs.Lives{}.Completed().Settle, time.Now()); step != certs.StepNone {
		t.Errorf("what is kept is to be %s: %s", step, why)
	}
}
