package views

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// certificateFor is a certificate for addresses, and behind it what verifies it.
func certificateFor(t *testing.T, addresses ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour)}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, []byte("authority")}, PrivateKey: key, Leaf: leaf}
}

// TestPodsAreToldWhereTheHubIs checks that Pods are told only an address that they can connect to: --secure-bind-address=node
// does not promise a certificate.
func TestPodsAreToldWhereTheHubIs(t *testing.T) {
	for _, tt := range []struct {
		name, bind, found string // bound to "": where the node is
		master            bool
		certificate       *tls.Certificate
		service, proxy    string // where they are shown; "": as they are
		problem           string
	}{
		{"address and certificate", "", "10.0.0.7", true, certificateFor(t, "10.0.0.7"), "10.0.0.7:10268",
			"https://10.0.0.7:10268", ""},
		{"IPv6", "", "fd00::7", true, certificateFor(t, "fd00::7"), "[fd00::7]:10268", "https://[fd00::7]:10268", ""},
		{"nobody approves", "", "10.0.0.7", true, nil, "", "", "there is no certificate"},
		{"the node has moved", "", "10.0.0.8", true, certificateFor(t, "10.0.0.7"), "", "", "there is no certificate"},
		{"not known yet", "", "", true, certificateFor(t, "10.0.0.7"), "", "", "the cloud has not said yet"},
		{"not asked for", "", "10.0.0.7", false, certificateFor(t, "10.0.0.7"), "", "", ""},
		{"given, no certificate yet", "10.0.0.7", "", true, nil, "10.0.0.7:10268", "", "there is no certificate"},
		{"given", "10.0.0.7", "", true, certificateFor(t, "10.0.0.7"), "10.0.0.7:10268",
			"https://10.0.0.7:10268", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fixed, _ := netip.ParseAddr(tt.bind)
			e := NewEntrance(EntranceConfig{
				Node: "n1", Fixed: fixed, OfNode: tt.bind == "", Dir: t.TempDir(), Port: 10268, Tell: tt.master,
				Shown:  NewConfigMaps(RootCA, KubeProxy),
				Served: func() *live.Value[*tls.Certificate] { return live.NewValue(tt.certificate) },
			})
			if tt.found != "" {
				e.address.Set(netip.MustParseAddr(tt.found))
			}
			e.Tell()
			if got := shownService(t, e); got != tt.service {
				t.Errorf("the Service is shown at %q, want %q", got, tt.service)
			}
			if got := shownProxy(t, e); got != tt.proxy {
				t.Errorf("kube-proxy's server is %q, want %q", got, tt.proxy)
			}
			s := e.Status()
			if s.Told != (tt.service != "") || !strings.HasPrefix(s.Problem, tt.problem) || tt.problem == "" && s.Problem != "" {
				t.Errorf("status %+v", s)
			}
		})
	}
	if NewEntrance(EntranceConfig{}).Status() != nil {
		t.Error("a hub that serves no Pods says where")
	}
}

// shownService is where kubelet sees the Service default/kubernetes; "" if it is where the cloud has it.
func shownService(t *testing.T, e *Entrance) string {
	t.Helper()
	const cloud = "10.96.0.1:443"
	look, _ := e.master.Look()
	s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 443}}}}
	asShown(t, look, "Service", stream.Key{Namespace: "default", Name: "kubernetes"}, s)
	at := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), uint16(s.Spec.Ports[0].Port)).String()
	if at == cloud {
		return ""
	}
	return at
}

// shownProxy is the server of kube-proxy's kubeconfig, as kubelet sees it; "" if it is the cloud.
func shownProxy(t *testing.T, e *Entrance) string {
	t.Helper()
	look, _ := e.cfg.Shown.Look()
	kubeconfig := "kind: Config\nclusters:\n- name: c\n  cluster: {certificate-authority-data: YQ==, server: https://cloud}\n" +
		"contexts:\n- name: c\n  context: {cluster: c, user: u}\ncurrent-context: c\nusers:\n- name: u\n  user: {tokenFile: /t}\n"
	m := &corev1.ConfigMap{Data: map[string]string{"kubeconfig.conf": kubeconfig}}
	asShown(t, look, "ConfigMap", stream.Key{Namespace: "kube-system", Name: "kube-proxy"}, m)
	for line := range strings.Lines(m.Data["kubeconfig.conf"]) {
		if server, ok := strings.CutPrefix(strings.TrimSpace(line), "server: "); ok && server != "https://cloud" {
			return server
		}
	}
	return ""
}

// asShown makes an object what a look shows of it.
func asShown(t *testing.T, look replica.Look, kind string, k stream.Key, o interface {
	Marshal() ([]byte, error)
	Unmarshal(raw []byte) error
	Reset()
}) {
	t.Helper()
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	typ := stream.Type{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(kind), Encoding: stream.Protobuf}
	shown, _ := look.Show(typ, stream.Object{Key: k, Raw: raw})
	o.Reset()
	if err := o.Unmarshal(shown); err != nil {
		t.Fatal(err)
	}
}

// TestPodsAreServedWhereTheNodeIs, and no longer where it was.
func TestPodsAreServedWhereTheNodeIs(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(taken.Addr().String()).Port()
	pair := certificateFor(t, "127.0.0.1", "127.0.0.2")
	e := NewEntrance(EntranceConfig{OfNode: true, Port: port, Dir: t.TempDir(), Served: func() *live.Value[*tls.Certificate] {
		return live.NewValue(pair)
	}})
	e.Serve(front.ServerConfig{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &tls.Certificate{Certificate: pair.Certificate[:1], PrivateKey: pair.PrivateKey, Leaf: pair.Leaf}, nil
		}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := e.serve(ctx); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer cancel()

	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	var why error
	serves := func(at string) bool {
		resp, err := client.Get("https://" + netip.AddrPortFrom(netip.MustParseAddr(at), port).String())
		if why = err; err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusTeapot
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("not so within a minute: %s: %v; status %+v", what, why, e.Status())
			}
		}
	}
	e.address.Set(netip.MustParseAddr("127.0.0.1"))
	until("it says that the port is taken", func() bool { return strings.Contains(e.Status().Problem, "cannot listen") })
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	until("it serves at the first address", func() bool { return serves("127.0.0.1") })
	e.address.Set(netip.MustParseAddr("127.0.0.2"))
	until("it serves at the second", func() bool { return serves("127.0.0.2") })
	if serves("127.0.0.1") {
		t.Error("it still serves where the node was")
	}
	if s := e.Status(); s.Problem != "" {
		t.Errorf("status %+v", s)
	}
}
