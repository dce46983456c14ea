package approve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	return judgedBy(t, Config{Kubelets: true, Allowed: here(t).Allowed}, fail, objects...)
}

func judgedBy(t *testing.T, cfg Config, fail error, objects ...client.Object) (
	csr *certificatesv1.CertificateSigningRequest, events said, result reconcile.Result, err error,
) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), certificatesv1.AddToScheme(scheme),
		discoveryv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	approvals := 0
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range indexes() {
		builder = builder.WithIndex(i.of, i.name, i.values)
	}
	c := builder.WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
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
	if cfg.Resolver == nil {
		cfg.Server, cfg.Resolver = "https://api.example.com:6443", hosts{"api.example.com": {"10.0.0.200"}}
	}
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

// hosts are a Resolver. One without addresses fails.
type hosts map[string][]string

func (n hosts) LookupNetIP(_ context.Context, _, host string) (all []netip.Addr, err error) {
	texts, ok := n[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	if len(all) == 0 {
		err = &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
	}
	return all, err
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
	csr, events, result, err := judged(t, nil, asks("n1"), node("n1", address), master())
	if err != nil || !approved(csr) || csr.Status.Conditions[0].Reason != reasonKubelet || len(events) != 0 {
		t.Errorf("%v, %v, %v, %v", csr.Status.Conditions, events, result, err)
	}
	csr, events, _, err = judged(t, nil, asks("n2"), node("n1", address), master())
	if err != nil || len(csr.Status.Conditions) > 0 || len(events) != 1 || !strings.Contains(events[0], "own name") {
		t.Errorf("with another's name: %v, %v, %v", csr.Status.Conditions, events, err)
	}
	stranger := request(t, func(r *certificatesv1.CertificateSigningRequest, a *asked) {
		kubelets("n1")(r, a)
		mallory(r, a)
	})
	for name, objects := range map[string][]client.Object{
		"of no pool": {asks("n1"), unpooled("n1", address), master()}, "of no node": {asks("n1"), master()},
		"of somebody": {stranger, node("n1", address), master()},
	} {
		csr, events, result, err := judged(t, nil, objects...)
		if err != nil || len(csr.Status.Conditions) > 0 || len(events) != 0 || result.RequeueAfter != lookLast {
			t.Errorf("%s: %v, %v, %v, %v", name, csr.Status.Conditions, events, result, err)
		}
	}
	csr, events, result, err = judgedBy(t, Config{}, nil, asks("n1"), node("n1", address), master())
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
		"10.0.0.7 is not among":                {request(t, nil), node("n1"), master()},
		"there is no node n1":                  {request(t, nil), node("n2", address), master()},
		"an address of node n2":                {request(t, nil), node("n1", address), node("n2", address), master()},
		"is an address of the API server":      {forMaster, claimsAll, master()},
		`"mallory", which made it, is not a n`: {request(t, mallory), node("n1", address), master()},
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

// Where the API server is, is found out in all places that say so.
func TestWhereTheAPIServerIs(t *testing.T) {
	info := func(servers ...string) *corev1.ConfigMap {
		kubeconfig := "apiVersion: v1\nkind: Config\nclusters:\n"
		for i, server := range servers {
			kubeconfig += fmt.Sprintf("- name: c%d\n  cluster:\n    server: %s\n", i, server)
		}
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"},
			Data:       map[string]string{"kubeconfig": kubeconfig},
		}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.201"}}},
	}
	for _, tt := range []struct {
		name, ip string
		server   string
		resolver hosts
		objects  []client.Object
		why      string // empty: approved; "error": it cannot be found out
	}{
		{"the kubeconfig's host, resolved", "10.0.0.200", "", nil, nil, "the API server"},
		{"the kubeconfig's host, an address", "10.0.0.202", "10.0.0.202:6443", hosts{}, nil, "the API server"},
		{"of IPv6", "fd00::1", "https://[fd00::1]:6443", hosts{}, nil, "the API server"},
		{"an endpoint", "10.0.0.201", "", nil, []client.Object{slice}, "the API server"},
		{"cluster-info's host", "10.0.0.203", "", nil, []client.Object{info("https://10.0.0.203:6443")}, "the API server"},
		{"cluster-info's second, resolved", "10.0.0.204", "https://a:6443", hosts{"vip.example.com": {"10.0.0.204"}},
			[]client.Object{info("https://10.0.0.203:6443", "https://vip.example.com")}, "the API server"},
		{"a name that nobody knows", "10.0.0.7", "https://elsewhere:6443", hosts{},
			[]client.Object{info("https://nor-here")}, ""},
		{"a resolver that does not answer", "10.0.0.7", "https://vip:6443", hosts{"vip": nil}, nil, "error"},
		{"a cluster-info that cannot be read", "10.0.0.7", "", nil, []client.Object{&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"},
			Data:       map[string]string{"kubeconfig": "{"},
		}}, "error"},
		{"another address", "10.0.0.7", "", nil, []client.Object{slice, info("https://10.0.0.203:6443")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			its := node("n1", net.ParseIP(tt.ip))
			cfg := Config{Kubelets: true, Allowed: here(t).Allowed}
			if tt.resolver != nil {
				cfg.Server, cfg.Resolver = tt.server, tt.resolver
			}
			objects := append([]client.Object{request(t, asks("n1", []string{"n1"}, tt.ip)), its, master()}, tt.objects...)
			csr, events, _, err := judgedBy(t, cfg, nil, objects...)
			switch {
			case tt.why == "error":
				if err == nil || approved(csr) {
					t.Errorf("%v, %v", csr.Status.Conditions, err)
				}
			case err != nil || approved(csr) != (tt.why == ""):
				t.Errorf("%v, %v, %v", csr.Status.Conditions, events, err)
			case tt.why != "" && (len(events) != 1 || !strings.Contains(events[0], tt.why)):
				t.Errorf("%v", events)
			}
		})
	}
}

// Of a node that makes many requests the newest few are looked at, and those of others all the same.
func TestACrowdOfRequests(t *testing.T) {
	const many = 50
	all := []client.Object{node("n1", address), node("n2", net.IPv4(10, 0, 0, 8)), master()}
	ask := func(name, node, ip string, age time.Duration) *certificatesv1.CertificateSigningRequest {
		r := request(t, asks(node, []string{node}, ip))
		r.Name, r.CreationTimestamp = name, metav1.NewTime(made.Add(-age))
		return r
	}
	for i := range many {
		all = append(all, ask(fmt.Sprintf("csr-%02d", i), "n1", "192.168.0.1", time.Duration(i)*time.Second))
	}
	other := ask("csr-other", "n2", "10.0.0.8", time.Hour)
	for i := range many {
		of := fmt.Sprintf("csr-%02d", i)
		_, events, result, err := judged(t, nil, slices.Concat(
			[]client.Object{all[3+i]}, all[:3], all[3:3+i], all[4+i:], []client.Object{other})...)
		if err != nil || (len(events) > 0) != (i < maxOpen) || (result.RequeueAfter > 0) != (i < maxOpen) {
			t.Errorf("%s: %v, %v, %v", of, events, result, err)
		}
	}
	csr, events, _, err := judged(t, nil, append([]client.Object{other}, all...)...)
	if err != nil || !approved(csr) {
		t.Errorf("another node's: %v, %v, %v", csr.Status.Conditions, events, err)
	}
}

func TestAKubeletsRequestWhereNothingIsAllowed(t *testing.T) {
	asked := request(t, asks("n1", []string{"n1"}, address.String()))
	csr, events, result, err := judgedBy(t, Config{Kubelets: true}, nil, asked, node("n1", address), master())
	if err != nil || len(csr.Status.Conditions) > 0 || len(events) != 1 || result.RequeueAfter == 0 ||
		!strings.Contains(events[0], "--kubelet-serving-cidrs") {
		t.Errorf("%v, %q, %v, %v", csr.Status.Conditions, events, result, err)
	}
}
