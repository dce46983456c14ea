package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/sim/pki"
)

// memory is a network in memory, to which all machines of a test are connected.
type memory struct {
	mu sync.Mutex
	at map[string]*bufconn.Listener
}

func (m *memory) listen(_, address string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	m.at[address] = bufconn.Listen(64 << 10)
	return m.at[address], nil
}

func (m *memory) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m.mu.Lock()
	there := m.at[address]
	m.mu.Unlock()
	if there == nil {
		return nil, syscall.ECONNREFUSED
	}
	return there.DialContext(ctx)
}

// oneLease is a cloud that knows the Lease of one node.
type oneLease struct {
	path  string
	mu    sync.Mutex
	lease coordinationv1.Lease
}

func (o *oneLease) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/readyz":
		return
	case r.URL.Path != o.path || len(r.TLS.PeerCertificates) == 0:
		http.NotFound(w, r)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err == nil { // JSON or protobuf
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &o.lease)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	o.lease.APIVersion, o.lease.Kind = "coordination.k8s.io/v1", "Lease"
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&o.lease)
}

func (o *oneLease) renewed() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return o.lease.Spec.RenewTime.Time
}

// TestAHubInABubble: a whole hub runs with the arguments of New and files, and needs nothing else from the machine. It passes on
// kubelet's heartbeats, and leaves no goroutine behind.
func TestAHubInABubble(t *testing.T) {
	for name, more := range map[string][]string{
		"alone": nil,
		"whose coordinator is not there": {
			"--nodepool-name=p1", "--enable-coordinator", "--coordinator-server-addr=https://10.0.0.2:10270",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { beats(t, more) })
		})
	}
}

func beats(t *testing.T, more []string) {
	lan := &memory{at: map[string]*bufconn.Listener{}}
	ca, err := pki.Create(t.TempDir(), "ca", nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err := ca.Issue(pki.Request{Name: "n1", CommonName: "system:node:n1", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	cloud := &oneLease{path: edge.NodeName("n1").LeasePath()}
	stopCloud := sync.OnceFunc(serve(t, lan, ca, "10.0.0.1:6443", cloud))
	defer stopCloud()

	dir, began := t.TempDir(), time.Now()
	h, err := New(flags(t, append([]string{
		"--node-name=n1", "--server-addr=https://10.0.0.1:6443", "--ca-file=" + ca.Files().Cert, "--cert-file=" + node.Cert,
		"--key-file=" + node.Key, "--disk-cache-path=" + filepath.Join(dir, "cache"), "--cert-dir=" + filepath.Join(dir, "pki"),
	}, more...)...), ends.Ends{
		Clock: ends.Clock{
			Ran:  func() time.Time { return time.Unix(0, 0).Add(time.Since(began)) }, // whoever mixes clocks is decades off
			Boot: func() (string, time.Duration) { return "first", time.Since(began) },
		},
		Net: ends.Net{Dial: lan.dial, DialNear: lan.dial, Listen: lan.listen},
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	kubelet, token := programOf(t, lan, filepath.Join(dir, "pki"))
	defer kubelet.CloseIdleConnections()
	var sent metav1.MicroTime
	put := func() (status int, answer string) {
		sent = metav1.NewMicroTime(time.Now())
		name := "n1"
		body, err := json.Marshal(&coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: name, UID: "u", ResourceVersion: "1"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &sent},
		})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://127.0.0.1:10261"+cloud.path,
			bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
		res, err := kubelet.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		read, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(read)
	}
	for range 6 {
		time.Sleep(10 * time.Second)
		if status, answer := put(); status != http.StatusOK || !cloud.renewed().Equal(sent.Time) {
			t.Fatalf("kubelet is told %d %s; the cloud's Lease was renewed %v, want %v", status, answer, cloud.renewed(), sent)
		}
	}
	if got, since := h.cloud.Link().Get(), h.cloud.Traffic().Since; got != link.Up || !since.Equal(began) {
		t.Errorf("the link to the cloud is %v, and was used since %v; want %v", got, since, began)
	}

	stopCloud()
	time.Sleep(10 * time.Second)
	if status, answer := put(); status != http.StatusServiceUnavailable {
		t.Errorf("without a cloud, kubelet is told %d %s", status, answer)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cloud/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.cloud.AsHub().RoundTrip(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if down := (*upstream.DownError)(nil); !errors.As(err, &down) || time.Since(down.Since) > 10*time.Second {
		t.Errorf("without a cloud, a request fails with %v", err)
	}
}

// serve serves a handler, over TLS, until what it returns is called.
func serve(t *testing.T, lan *memory, ca *pki.Authority, address string, handler http.Handler) (stop func()) {
	t.Helper()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Issue(pki.Request{Name: "server", Server: true, IPs: []net.IP{net.ParseIP(host)}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := lan.listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert,
	}}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	return func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}

// programOf returns a client that trusts the hub as kubelet does, and kubelet's token.
func programOf(t *testing.T, lan *memory, pki string) (*http.Client, string) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(pki, front.FileToken))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(pki, front.FileCertificate))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &http.Client{Transport: &http.Transport{DialContext: lan.dial, TLSClientConfig: &tls.Config{RootCAs: roots}}},
		strings.TrimSpace(string(token))
}
