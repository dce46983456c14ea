package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

const (
	tokenID, tokenSecret = "abcdef", "fedcba9876543210"
	token                = tokenID + "." + tokenSecret
	year                 = 365 * 24 * time.Hour
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-year), NotAfter: time.Now().Add(20 * year),
	}
	a := &authority{key: key}
	a.cert = template
	a.cert = a.sign(t, template, key.Public())
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return a
}

func (a *authority) sign(t testing.TB, template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hub is what a pool's authority makes of a request of node n1's hub.
func (a *authority) hub(t testing.TB, template *x509.Certificate, x *x509.CertificateRequest) []byte {
	t.Helper()
	template.Subject = pkix.Name{CommonName: "openyurt:hub:n1"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.IPAddresses = x.IPAddresses
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.sign(t, template, x.PublicKey).Raw})
}

func (a *authority) hash() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(a.cert.RawSubjectPublicKeyInfo))
}

// pair is a certificate of this authority with its key in one PEM.
func (a *authority) pair(t testing.TB, template *x509.Certificate) []byte {
	t.Helper()
	key, encoded, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	c := a.sign(t, template, key.Public())
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), encoded...)
}

// nodeCert is the template by which a signer answers a request of node n1.
func nodeCert(from, to time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		NotBefore: from, NotAfter: to, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// cloud is a TLS server with the part of Kubernetes' API that a node needs to get its certificates.
type cloud struct {
	t       testing.TB
	ca      *authority // of servers and clients, as kubeadm has it
	hubs    *authority // of a pool's hubs
	life    time.Duration
	accepts chan net.Conn
	info    string // the kubeconfig of cluster-info
	below   string // the path below which its API is
	serves  atomic.Pointer[tls.Certificate]

	mu sync.Mutex
	// may be changed while it runs
	cut       bool
	signature string
	tokens    map[string]bool
	signer    *authority
	// root is the ConfigMap kube-root-ca.crt; "" means that nodes may not read it
	root    string
	knows   []*authority                                                                        // other authorities of clients
	approve func(*certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType // "" waits
	issue   func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest) []byte
	// what was seen
	requests map[string]*certificatesv1.CertificateSigningRequest
	creates  []string // user of each
	calls    int
	dials    int
	secrets  int // requests with an Authorization header
	bodies   []string
}

func newCloud(t testing.TB, ca *authority) *cloud {
	t.Helper()
	c := &cloud{
		t: t, ca: ca, signer: ca, hubs: newAuthority(t, "openyurt:hubs-authority:hangzhou"), life: year,
		accepts: make(chan net.Conn), tokens: map[string]bool{token: true},
		requests: map[string]*certificatesv1.CertificateSigningRequest{},
	}
	c.approve = func(r *certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
		if r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
			return certificatesv1.CertificateApproved
		}
		return ""
	}
	c.issue = func(r *certificatesv1.CertificateSigningRequest, x *x509.CertificateRequest) []byte {
		template := nodeCert(time.Now().Add(-5*time.Minute), time.Now().Add(c.life))
		template.Subject = x.Subject
		if r.Spec.SignerName == edge.SignerHubs {
			return append(c.hubs.hub(t, template, x), c.hubs.pem...)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.signer.sign(t, template, x.PublicKey).Raw})
	}
	c.setInfo(ca.pem)
	c.show(ca)
	c.start()
	return c
}

// setInfo makes cluster-info name an authority, signed with the token.
func (c *cloud) setInfo(authority []byte) {
	encoded, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config",
		"clusters": []any{map[string]any{"name": "", "cluster": map[string]any{
			"server": "https://cloud:6443", "certificate-authority-data": authority,
		}}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.info = string(encoded)
	if c.signature, err = jws.ComputeDetachedSignature(c.info, tokenID, tokenSecret); err != nil {
		c.t.Fatal(err)
	}
}

// show makes the server show a certificate of an authority, followed by others that lead to it.
func (c *cloud) show(ca *authority, more ...*x509.Certificate) {
	content := ca.pair(c.t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, DNSNames: []string{"cloud"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * year),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range more {
		pair.Certificate = append(pair.Certificate, m.Raw)
	}
	c.serves.Store(&pair)
}

// start serves on connections in memory.
func (c *cloud) start() {
	server := &http.Server{Handler: http.HandlerFunc(c.serve), ErrorLog: log.New(io.Discard, "", 0)}
	config := &tls.Config{
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.serves.Load(), nil },
	}
	listener := tls.NewListener(&pipes{accepts: c.accepts, closed: make(chan struct{})}, config)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	c.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			c.t.Error(err)
		}
		serving.Wait()
	})
}

// dial is Config.Dial. A server that is cut off takes five seconds not to answer.
func (c *cloud) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c.mu.Lock()
	cut := c.cut
	c.dials++
	c.mu.Unlock()
	if cut {
		_ = run.Pause(ctx, dialFor)
		return nil, errors.New("i/o timeout")
	}
	near, far := net.Pipe()
	select {
	case c.accepts <- newBuffered(far):
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// buffered is a connection whose writes do not wait for the other side, as a socket's: in TLS both may write at once.
type buffered struct {
	net.Conn
	mu     sync.Mutex
	closed bool
	out    chan []byte
}

func newBuffered(conn net.Conn) *buffered {
	b := &buffered{Conn: conn, out: make(chan []byte, 256)}
	go func() { // ends with the connection
		for data := range b.out {
			if _, err := conn.Write(data); err != nil {
				break
			}
		}
		conn.Close()
	}()
	return b
}

func (b *buffered) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	select {
	case b.out <- append([]byte(nil), data...):
		return len(data), nil
	default:
		return 0, errors.New("buffer full")
	}
}

func (b *buffered) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.out)
	}
	return nil
}

func (b *buffered) SetDeadline(at time.Time) error      { return b.SetReadDeadline(at) }
func (b *buffered) SetWriteDeadline(at time.Time) error { return nil }

type pipes struct {
	accepts chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepts:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (c *cloud) user(r *http.Request) (string, bool) {
	if given := r.Header.Get("Authorization"); given != "" {
		c.secrets++
		bearer := strings.TrimPrefix(given, "Bearer ")
		return "system:bootstrap:" + tokenID, c.tokens[bearer]
	}
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		roots := x509.NewCertPool()
		roots.AddCert(c.ca.cert)
		for _, a := range c.knows {
			roots.AddCert(a.cert)
		}
		_, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return certs[0].Subject.CommonName, err == nil
	}
	return "system:anonymous", true
}

func (c *cloud) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.below != "" {
		http.StripPrefix(c.below, http.HandlerFunc(func(w http.ResponseWriter, below *http.Request) { c.answer(w, below) })).
			ServeHTTP(w, r)
		return
	}
	c.answer(w, r)
}

func (c *cloud) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.bodies = append(c.bodies, string(body))
	user, known := c.user(r)
	const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, requests), "/")
	switch {
	case !known:
		// What a server says may hold anything.
		status(w, 401, metav1.StatusReasonUnauthorized, "Unauthorized: "+r.Header.Get("Authorization"))
	case r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/cluster-info":
		data := map[string]string{"kubeconfig": c.info}
		if c.signature != "" {
			data["jws-kubeconfig-"+tokenID] = c.signature
		}
		reply(w, 200, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, Data: data})
	case r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt" && c.root != "" && user != "system:anonymous":
		reply(w, 200, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
			Data: map[string]string{"ca.crt": c.root}})
	case r.URL.Path == "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt":
		status(w, 403, metav1.StatusReasonForbidden, `configmaps "kube-root-ca.crt" is forbidden`)
	case user == "system:anonymous":
		status(w, 403, metav1.StatusReasonForbidden, `User "system:anonymous" cannot do this`)
	case r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		reply(w, 201, &authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}},
		})
	case r.Method == http.MethodPost && r.URL.Path == requests:
		asked := &certificatesv1.CertificateSigningRequest{}
		if err := json.Unmarshal(body, asked); err != nil {
			c.t.Error(err)
		}
		if c.requests[asked.Name] != nil {
			status(w, 409, metav1.StatusReasonAlreadyExists, "exists")
			return
		}
		asked.APIVersion, asked.Kind, asked.Spec.Username = "certificates.k8s.io/v1", "CertificateSigningRequest", user
		c.requests[asked.Name] = asked
		c.creates = append(c.creates, user)
		reply(w, 201, asked)
	case c.requests[name] == nil:
		status(w, 404, metav1.StatusReasonNotFound, "not found")
	default:
		found := c.requests[name]
		c.sign(found)
		reply(w, 200, found)
	}
}

// sign does what kube-controller-manager does.
func (c *cloud) sign(r *certificatesv1.CertificateSigningRequest) {
	if len(r.Status.Conditions) > 0 {
		return
	}
	decision := c.approve(r)
	if decision == "" {
		return
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: decision, Status: corev1.ConditionTrue}}
	block, _ := pem.Decode(r.Spec.Request)
	x, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || x.CheckSignature() != nil {
		c.t.Errorf("request %s: %v", r.Name, err)
		return
	}
	if decision == certificatesv1.CertificateApproved {
		r.Status.Certificate = c.issue(r, x)
	}
}

func (c *cloud) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cloud) created() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.creates...)
}

// count reads what was counted.
func (c *cloud) count(n *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *n
}

func reply(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Warning", `299 - "`+message+`"`)
	reply(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// node is a manager with its directory and what it logs.
type node struct {
	*Manager
	t   testing.TB
	ctx context.Context
	cfg Config

	mu   sync.Mutex
	logs strings.Builder
}

func servers(addresses ...string) (all []*url.URL) {
	for _, a := range addresses {
		u, err := url.Parse(a)
		if err != nil {
			panic(err)
		}
		all = append(all, u)
	}
	return all
}

func newNode(t testing.TB, c *cloud, change func(*Config)) *node {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{
		Node: "n1", Dir: filepath.Join(dir, "pki"), Servers: servers("https://cloud:6443"),
		BootstrapFile: filepath.Join(dir, "token"), CACertHashes: []string{c.ca.hash()},
	}
	write(t, cfg.BootstrapFile, token+"\n")
	if change != nil {
		change(&cfg)
	}
	n := &node{t: t, cfg: cfg}
	n.ctx = klog.NewContext(t.Context(), funcr.New(func(prefix, args string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		fmt.Fprintln(&n.logs, prefix, args)
	}, funcr.Options{Verbosity: 10}))
	var err error
	if n.Manager, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	n.dial = c.dial
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.noSecret("log", n.logs.String())
		all := n.Report()
		n.noSecret("status", all.Client.Problem+all.Serving.Problem)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, body := range c.bodies {
			n.noSecret("request", body)
		}
	})
	return n
}

// noSecret fails if a text has the token's secret or a private key in it.
func (n *node) noSecret(where, text string) {
	if strings.Contains(text, tokenSecret) || strings.Contains(text, "PRIVATE KEY") {
		n.t.Errorf("a secret is in the %s: %s", where, text)
	}
}

func (n *node) content() string {
	_, pair, _ := n.Files()
	content, err := os.ReadFile(pair)
	if err != nil {
		return ""
	}
	return string(content)
}

// leaf is the certificate on disk; it fails if there is none that matches its key.
func (n *node) leaf() *x509.Certificate {
	n.t.Helper()
	pair, err := n.load(n.client)
	if err != nil {
		n.t.Fatal(err)
	}
	return pair.Leaf
}

// start runs the manager and returns what stops it and waits.
func (n *node) start() (stop func()) {
	ctx, cancel := context.WithCancel(n.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			n.t.Errorf("Run: %v", err)
		}
	})
	return func() { cancel(); running.Wait() }
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// at is an address that Pods are served at.
func at(address string) *live.Value[netip.Addr] { return live.NewValue(netip.MustParseAddr(address)) }
