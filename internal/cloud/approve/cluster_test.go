package approve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// members is how many ask at once in tests.
const members = 20

func addressOf(i int) string { return fmt.Sprintf("10.128.%d.%d", i/250, i%250+1) }

// nodesOf makes nodes of a pool that have said their addresses, as kubelets do when they register.
func nodesOf(t testing.TB, c client.Client, n int) {
	t.Helper()
	each(t, n, func(ctx context.Context, i int) error {
		node := &corev1.Node{}
		node.Name, node.Labels = fmt.Sprintf("node-%05d", i), map[string]string{edge.LabelNodePool: "p1"}
		node.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: node.Name}, {Type: corev1.NodeInternalIP, Address: addressOf(i)},
		}
		return c.Create(ctx, node)
	})
}

// askAll has each node ask for its serving certificate.
func askAll(t testing.TB, cfg *rest.Config, n int) {
	t.Helper()
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	each(t, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("node-%05d", i)
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject:     pkix.Name{CommonName: "system:node:" + name, Organization: []string{edge.GroupNodes}},
			DNSNames:    []string{name},
			IPAddresses: []net.IP{net.ParseIP(addressOf(i))},
		}, key)
		if err != nil {
			return err
		}
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		}}
		r.GenerateName = "csr-"
		return api.CertificatesV1().RESTClient().Post().Resource("certificatesigningrequests").
			SetHeader("Impersonate-User", "system:node:"+name).
			SetHeader("Impersonate-Group", edge.GroupNodes, "system:masters"). // the server has no Node authorizer
			Body(r).Do(ctx).Error()
	})
}

// each does something n times, several at a time.
func each(t testing.TB, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	var all sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(t.Context(), i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// approving runs the controller until stop is called.
func approving(t testing.TB, cfg *rest.Config) (stop func()) {
	t.Helper()
	allowed, err := ParseAllowed([]string{"10.128.0.0/16"}, []string{"node-*"})
	if err != nil {
		t.Fatal(err)
	}
	return cloudtest.Manager(t, cfg, manager.Options{}, func(mgr manager.Manager) error {
		return New(Config{
			Kubelets: true, Allowed: allowed, Server: cfg.Host, Resolver: nobody{},
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("test"), Clock: clock.RealClock{},
		}).AddTo(mgr)
	})
}

// nobody knows no name.
type nobody struct{}

func (nobody) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

// allApproved waits until so many requests are approved.
func allApproved(t testing.TB, c client.Client, n int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second / 4) {
		all := &certificatesv1.CertificateSigningRequestList{}
		if err := c.List(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		done := 0
		for i := range all.Items {
			if approved(&all.Items[i]) {
				done++
			}
		}
		switch {
		case done == n:
			return
		case time.Since(began) > 5*time.Minute:
			t.Fatalf("%d of %d requests are approved after 5 minutes", done, n)
		}
	}
}

// The controller with a real API server, its indexes with the real cache.
func TestInACluster(t *testing.T) {
	cfg := cloudtest.Start(t, cloudtest.WithoutCRDs())
	c := cloudtest.Client(t, cfg)
	nodesOf(t, c, members)
	stop := approving(t, cfg)
	defer stop()
	askAll(t, cfg, members)
	allApproved(t, c, members)
}

// BenchmarkTenThousandNodes is how long it takes until all nodes of a large cluster have been approved, which ask while no
// controller runs.
func BenchmarkTenThousandNodes(b *testing.B) {
	const n = 10_000
	cfg := cloudtest.Start(b, cloudtest.WithoutCRDs())
	cfg.QPS, cfg.Burst = 1000, 2000
	c := cloudtest.Client(b, cfg)
	nodesOf(b, c, n)
	askAll(b, cfg, n)
	b.ResetTimer()
	stop := approving(b, cfg)
	defer stop()
	allApproved(b, c, n)
	b.ReportMetric(b.Elapsed().Seconds(), "s/10000-nodes")
}
