package pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/etcd"
	"yurtcoordinator/internal/pool/pooltest"
)

func TestMain(m *testing.M) {
	// As the program does: Kubernetes' code logs warnings and errors only.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// shiftedClock is the real clock, some time later.
type shiftedClock struct {
	by atomic.Int64
}

func (c *shiftedClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *shiftedClock) Step(d time.Duration) { c.by.Add(int64(d)) }

// coordinator is a real one, in this process.
type coordinator struct {
	meant   error // what it may end with; nil means that nothing is wrong
	ca      *pooltest.Authority
	clock   *shiftedClock
	audit   string
	dataDir string
	address string
	probes  string // where kubelet's probes go
	cancel  context.CancelFunc
	done    chan struct{} // closed when Run has returned
	err     error         // of Run; read it after done
}

// start runs a coordinator until the test ends, or until its stop. It lets hubs lead at once.
func start(t *testing.T, set func(*Config)) *coordinator {
	t.Helper()
	c := startYoung(t, set)
	c.clock.Step(edge.ElectionTerm)
	return c
}

// startYoung is start, of a coordinator that does not let hubs lead yet.
func startYoung(t *testing.T, set func(*Config)) *coordinator {
	t.Helper()
	c := &coordinator{
		ca:      pooltest.NewAuthority(t, "pool-ca"),
		clock:   &shiftedClock{},
		audit:   filepath.Join(t.TempDir(), "audit.log"),
		dataDir: shortDir(t),
	}
	config := goodConfig(t, c.ca)
	config.NodeName = "n1"
	config.DataDir = c.dataDir
	log, err := os.Create(c.audit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() }) // after the coordinator's end
	config.AuditLog, config.refusals = log, 1<<16
	config.connections = 1 << 16          // a test's many clients all come from one address
	config.stopTimeout = 45 * time.Second // a busy machine under the race detector; one test measures it
	config.Ends.Clock = ends.Clock{OfDay: c.clock.Now, Ran: c.clock.Now}
	if set != nil {
		set(&config)
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		c.err = p.Run(ctx)
	}()
	t.Cleanup(func() {
		if err := c.stop(t); err != nil && !errors.Is(err, etcd.ErrNoSpace) && (c.meant == nil || !errors.Is(err, c.meant)) {
			t.Errorf("stop: %v", err)
		}
	})
	ready, failed := context.WithCancelCause(t.Context())
	go func() {
		<-c.done
		failed(c.err)
	}()
	if c.address, err = p.WaitReady(ready); err != nil {
		t.Fatalf("stopped while starting: %v", err)
	}
	c.probes = p.probes
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	return c
}

// auditLines are the lines of the audit log by now.
func (c *coordinator) auditLines(t testing.TB) (all []auditv1.Event) {
	t.Helper()
	content, err := os.ReadFile(c.audit)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(content)) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all = append(all, e)
	}
	return all
}

// audited waits for a line of the audit log: an answer is read before its line is written.
func (c *coordinator) audited(t testing.TB, what string, fits func(auditv1.Event) bool) (line auditv1.Event) {
	t.Helper()
	err := eventually(t.Context(), func() error {
		lines := c.auditLines(t)
		i := slices.IndexFunc(lines, fits)
		if i < 0 {
			return fmt.Errorf("none of %d lines: %+v", len(lines), lines)
		}
		line = lines[i]
		return nil
	})
	if err != nil {
		t.Fatalf("the audit log does not have %s: %v", what, err)
	}
	return line
}

// refused returns what fits a line about who was refused what, and why.
func refused(code int32, user, verb, uri, why string) func(auditv1.Event) bool {
	return func(e auditv1.Event) bool {
		said := e.ResponseStatus.Message + e.Annotations[edge.AnnotationRefused]
		return e.ResponseStatus.Code == code && e.User.Username == user && e.Verb == verb &&
			strings.HasPrefix(e.RequestURI, uri) && strings.Contains(said, why)
	}
}

// wait blocks until Run has returned.
func (c *coordinator) wait(t testing.TB) error {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatal("Run does not return")
	}
	return c.err
}

func (c *coordinator) stop(t testing.TB) error {
	t.Helper()
	c.cancel()
	return c.wait(t)
}

// shortDir is on memory if there is any, and short enough for a socket in it.
func shortDir(t testing.TB) string {
	t.Helper()
	parent := "/dev/shm"
	if unix.Access(parent, unix.W_OK|unix.X_OK) != nil {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "pool-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (c *coordinator) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.Cert)
	return roots
}

func (c *coordinator) tls(certs ...tls.Certificate) *tls.Config {
	config := &tls.Config{RootCAs: c.roots()}
	if len(certs) > 0 {
		// Shown whatever CAs the server names: a liar's client does not hold back what won't be accepted.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &certs[0], nil
		}
	}
	return config
}

// http is a client of the coordinator that shows these certificates.
func (c *coordinator) http(t testing.TB, certs ...tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: c.tls(certs...), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func (c *coordinator) get(t testing.TB, client *http.Client, path string) (int, string) {
	t.Helper()
	code, body, err := getAt(t, client, c.address, path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return code, body
}

// opensAt returns an answer that may go on until the test ends.
func (c *coordinator) opensAt(t *testing.T, client *http.Client, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// probe asks as a kubelet's probe does: on this machine, without a certificate.
func (c *coordinator) probe(t testing.TB, path string) (int, string) {
	t.Helper()
	code, body, err := getAt(t, c.http(t), c.probes, path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return code, body
}

func getAt(t testing.TB, client *http.Client, address, path string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body), nil
}

// shutOut asks with certificates that the handshake refuses, and says so. HTTP's clients may hide what they were told.
func (c *coordinator) shutOut(t testing.TB, who, alert string, certs ...tls.Certificate) {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 30 * time.Second}, Config: c.tls(certs...)}
	conn, err := dialer.DialContext(t.Context(), "tcp", c.address)
	if err == nil { // TLS 1.3 tells it after the client's part of the handshake
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err = io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: coordinator\r\n\r\n"); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
	}
	if err == nil || !strings.Contains(err.Error(), alert) {
		t.Errorf("%s: %v; want %q", who, err, alert)
	}
}

// What a client is told whom the handshake refuses.
const (
	certificateRequired = "tls: certificate required"
	badCertificate      = "tls: bad certificate"
)

// as is a client that sends JSON, as kubectl does.
func (c *coordinator) as(t testing.TB, subject pkix.Name) kubernetes.Interface {
	t.Helper()
	cert := c.ca.Issue(t, subject, pooltest.Tomorrow())
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://" + c.address,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.Pem, CertData: cert.Cert, KeyData: cert.Key},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
		QPS:             -1,
		Timeout:         30 * time.Second,
		WarningHandler:  rest.NoWarnings{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func portOf(t testing.TB, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
