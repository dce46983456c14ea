package charts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
)

// signingRequest is a certificate request that an API server takes.
func signingRequest(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// A real API server takes all that the chart renders, each field of it; and the controller's Pod passes the strictest of
// Kubernetes' Pod security standards.
func TestARealServerTakesWhatIsRendered(t *testing.T) {
	c := client.WithFieldValidation(cloudtest.Client(t, policed(t)), metav1.FieldValidationStrict)
	out, err := template(t, append([]string{"--set", "image.pullSecrets={registry}"}, required...)...)
	if err != nil {
		t.Fatal(err)
	}
	restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "restricted", Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
	create(t, c, restricted)
	deployments := 0
	for _, doc := range documents(t, out) {
		o := parse(t, doc)
		if o.GetKind() == "Namespace" ||
			o.GetKind() == "CustomResourceDefinition" || o.GroupVersionKind().Group == "admissionregistration.k8s.io" {
			continue // they are there: the golden files' test compares them
		}
		mustAccept(t, id(o), c.Create(t.Context(), o.DeepCopy(), client.DryRunAll))
		if o.GetKind() != "Deployment" {
			continue
		}
		deployments++
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "restricted", Name: "p"}, Spec: d.Spec.Template.Spec,
		}
		mustAccept(t, "its Pod under restricted Pod security", c.Create(t.Context(), pod, client.DryRunAll))
		pod.Spec.Containers[0].SecurityContext = nil
		mustRefuse(t, "a Pod without its security", c.Create(t.Context(), pod, client.DryRunAll), "restricted")
	}
	if deployments != 2 {
		t.Errorf("%d Deployments", deployments)
	}
}
