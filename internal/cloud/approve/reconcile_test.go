package approve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type said []string

func (s *said) Eventf(_, _ runtime.Object, kind, _, _, note string, args ...any) {
	*s = append(*s, kind+" "+fmt.Sprintf(note, args...))
}

// made is when the request was made, age how long ago.
var made = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

const age = 7 * time.Second

// judged has the controller look at a request, the first of these objects, and returns what became of it.
func judged(t *testing.T, fail error, objects ...client.Object) (csr *certificatesv1.CertificateSigningRequest, events said,
	result reconcile.Result, err error,
) {
	t.Helper()
	return judgedBy(t, Config{Kubelets: true}, fail, objects...)
}

func judgedBy(t *testing.T, cfg Config, fail error, objects ...client.Object) (
	csr *certificatesv1.CertificateSigningRequest, events said, result reconcile.Result, err error,
) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), certificatesv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	approvals := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object,
			_ ...client.SubResourceUpdateOption) error {
			if approvals++; fail != nil {
				return fail
			}
			if sub != "approval" {
				t.Errorf("wrote %s", sub)
			}
			return c.Status().Update(ctx, obj)
		},
	}).Build()
	cfg.Client, cfg.Reader, cfg.Events, cfg.Clock = c, c, &events, clocktesting.NewFakePassiveClock(made.Add(age))
	a := New(cfg)
	key := client.ObjectKeyFromObject(objects[0])
	result, err = a.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	csr = &certificatesv1.CertificateSigningRequest{}
	if err := c.Get(t.Context(), key, csr); err != nil {
		t.Fatal(err)
	}
	return csr, events, result, err
}

func master() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}},
	}
}

func approved(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Conditions) == 1 && csr.Status.Conditions[0].Type == certificatesv1.CertificateApproved
}

func TestAHubsRequestIsApproved(t *testing.T) {
	csr, events, result, err := judged(t, nil, request(t, nil), node("n1", address), node("n2"), master())
	if err != nil || !approved(csr) || len(events) != 0 || result.RequeueAfter != 0 {
		t.Errorf("%v, %v, %v, %v", csr.Status.Conditions, events, result, err)
	}
}

// A kubelet's request is approved if its node is in a pool, unless that is switched off; others are not ours to speak of.
func TestAKubeletsRequest(t *testing.T) {
	asks := func(names ...string) client.Object { return request(t, kubelets(names...)) }
	csr, events, result, err := judged(t, nil, asks("n1"), named("n1", address), master())
	if err != nil || !approved(csr) || csr.Status.Conditions[0].Reason != reasonKubelet || len(events) != 0 {
		t.Errorf("%v, %v, %v, %v", csr.Status.Conditions, events, result, err)
	}
	csr, events, _, err = judged(t, nil, asks("n2"), named("n1", address), master())
	if err != nil || len(csr.Status.Conditions) > 0 || len(events) != 1 || !strings.Contains(events[0], "own name") {
		t.Errorf("with another's name: %v, %v, %v", csr.Status.Conditions, events, err)
	}
	stranger := request(t, func(r *certificatesv1.CertificateSigningRequest, a *asked) {
		kubelets("n1")(r, a)
		mallory(r, a)
	})
	for name, objects := range map[string][]client.Object{
		"of no pool": {asks("n1"), node("n1", address), master()}, "of no node": {asks("n1"), master()},
		"of somebody": {stranger, named("n1", address), master()},
	} {
		csr, events, result, err := judged(t, nil, objects...)
		if err != nil || len(csr.Status.Conditions) > 0 || len(events) != 0 || result.RequeueAfter != lookLast {
			t.Errorf("%s: %v, %v, %v, %v", name, csr.Status.Conditions, events, result, err)
		}
	}
	csr, events, result, err = judgedBy(t, Config{}, nil, asks("n1"), named("n1", address), master())
	if err != nil || len(csr.Status.Conditions) > 0 || len(events) != 0 || result.RequeueAfter != 0 {
		t.Errorf("switched off: %v, %v, %v, %v", csr.Status.Conditions, events, result, err)
	}
}

func TestOthersAreLeftAndLookedAtAgain(t *testing.T) {
	claimsAll := node("n1", address)
	claimsAll.Status.Addresses = append(claimsAll.Status.Addresses, corev1.NodeAddress{Address: "10.96.0.1"})
	forMaster := request(t, func(_ *certificatesv1.CertificateSigningRequest, a *asked) {
		a.IPAddresses = append(a.IPAddresses, masterIP)
	})
	for why, objects := range map[string][]client.Object{
		"10.0.0.7 is not among":              {request(t, nil), node("n1"), master()},
		"there is no node n1":                {request(t, nil), node("n2", address), master()},
		"an address of node n2":              {request(t, nil), node("n1", address), node("n2", address), master()},
		"an address of the API server":       {forMaster, claimsAll, master()},
		"mallory, which made it, is not a n": {request(t, mallory), node("n1", address), master()},
	} {
		csr, events, result, err := judged(t, nil, objects...)
		if err != nil || len(csr.Status.Conditions) > 0 || result.RequeueAfter != age ||
			len(events) != 1 || !strings.HasPrefix(events[0], "Warning Not approved: ") || !strings.Contains(events[0], why) ||
			!strings.Contains(events[0], "kubectl certificate approve") {
			t.Errorf("%s: %v, %q, %v, %v", why, csr.Status.Conditions, events, result, err)
		}
	}
}

func mallory(r *certificatesv1.CertificateSigningRequest, _ *asked) { r.Spec.Username = "mallory" }

func TestWhatCannotBeFoundOutIsAnError(t *testing.T) {
	csr, _, _, err := judged(t, nil, request(t, nil), node("n1", address)) // no Service
	if err == nil || len(csr.Status.Conditions) > 0 {
		t.Errorf("%v, %v", csr.Status.Conditions, err)
	}
	if _, _, _, err := judged(t, errors.New("no etcd"), request(t, nil), node("n1", address), master()); err == nil {
		t.Error("a failed write is no error")
	}
}
