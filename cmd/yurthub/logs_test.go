package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/logs/logstest"
)

// What must not be in any log, each in a place of its own.
const (
	ofSecret    = "c2VjcmV0LWluLWEtU2VjcmV0" // the value of a Secret, as it is on the wire
	ofCaller    = "token-of-a-caller"
	ofPod       = "token-that-a-Pod-gets"
	ofBootstrap = "abcdef.0123456789abcdef"
)

// site is a node with a cloud that has a Secret and makes tokens, and refuses bootstrap tokens.
type site struct {
	t    *testing.T
	dir  string
	port int
	args []string
	// bearers are what callers showed.
	bearers chan string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), bearers: make(chan string, 100)}
	cloud := httptest.NewUnstartedServer(s)
	cloud.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	cloud.StartTLS()
	t.Cleanup(cloud.Close)
	ports := free(t, 2)
	s.port = ports[0]
	s.file("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cloud.Certificate().Raw}))
	s.args = []string{
		"--node-name=n1", "--nodepool-name=p1", "--server-addr=" + cloud.URL, "--ca-file=" + filepath.Join(s.dir, "ca.crt"),
		"--cert-dir=" + filepath.Join(s.dir, "pki"), "--disk-cache-path=" + filepath.Join(s.dir, "cache"), "--kubelet-config=",
		"--cache-agents=*", fmt.Sprintf("--port=%d", ports[0]), fmt.Sprintf("--health-port=%d", ports[1]),
	}
	return s
}

// certified adds the flags of a node that has its certificate.
func (s *site) certified() []string {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	return append(slices.Clone(s.args),
		"--cert-file="+s.file("node.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"--key-file="+s.file("node.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})))
}

func (s *site) file(name string, content []byte) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// ServeHTTP implements http.Handler: it is the cloud.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if bearer := r.Header.Get("Authorization"); bearer != "" {
		select {
		case s.bearers <- bearer:
		default:
		}
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api/v1/namespaces/shop/secrets/key":
		fmt.Fprintf(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"key","namespace":"shop","uid":"u",`+
			`"resourceVersion":"7"},"data":{"k":%q}}`, ofSecret)
	case strings.HasSuffix(r.URL.Path, "/token"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"audiences":null},`+
			`"status":{"token":%q,"expirationTimestamp":"2099-01-01T00:00:00Z"}}`, ofPod)
	case strings.Contains(r.Header.Get("Authorization"), ofBootstrap):
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

// free returns ports that nobody listened on a moment ago.
func free(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// through asks the hub, as a program of the host, and returns what it answers. kubelet shows the token of the proof, others show
// their own.
func (s *site) through(method, path, bearer, body string) (answer string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	url := fmt.Sprintf("https://127.0.0.1:%d%s", s.port, path)
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header.Set("User-Agent", "kubelet/v1.36.3")
	r.Header.Set("Content-Type", "application/json")
	local, err := os.ReadFile(filepath.Join(s.dir, "pki", "local.crt"))
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(local)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(content)
}

const serving = "Serving kubelet and this host's programs"

// TestNoSecretIsLogged: a Secret and tokens go through a hub that logs all that can be logged, in each form, and none of them is
// in its log.
func TestNoSecretIsLogged(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		t.Run(form, func(t *testing.T) {
			s := newSite(t)
			p := logstest.Start(t, append(s.certified(), "--logging-format="+form, "-v=9")...)
			p.UntilSaid(serving)
			p.UntilSaid("Link is up")
			kubelet, err := os.ReadFile(filepath.Join(s.dir, "pki", "kubelet.token"))
			if err != nil {
				t.Fatal(err)
			}
			ofKubelet := strings.TrimSpace(string(kubelet))
			for _, bearer := range []string{ofKubelet, ofCaller} {
				for range 2 { // what was read is kept
					got := s.through(http.MethodGet, "/api/v1/namespaces/shop/secrets/key", bearer, "")
					if !strings.Contains(got, ofSecret) {
						t.Errorf("a Secret is %s", got)
					}
				}
				if got := s.through(http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts/default/token", bearer,
					`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"audiences":null}}`,
				); !strings.Contains(got, ofPod) {
					t.Errorf("a token is %s", got)
				}
			}
			if bearer := <-s.bearers; !strings.Contains(bearer, ofCaller) {
				t.Errorf("the cloud saw %q", bearer)
			}
			// The hub's own requests are logged with their headers, so it is as talkative as it can be.
			p.UntilSaid("/api/v1/namespaces/kube-system/configmaps")
			if err := p.Stop(); err != nil {
				t.Errorf("it ends with %v", err)
			}
			noneOf(t, p.Log(), ofSecret, ofKubelet, ofCaller, ofPod, "secret-in-a-Secret")
			if form == "text" {
				return
			}
			if highest := logstest.Highest(logstest.Entries(t, p.Log())); highest < 6 || highest > 7 {
				t.Errorf("the highest level is %d", highest)
			}
		})
	}
}

// TestNoBootstrapTokenIsLogged, while a hub has no certificate and the cloud refuses the token.
func TestNoBootstrapTokenIsLogged(t *testing.T) {
	s := newSite(t)
	token := s.file("token", []byte(ofBootstrap+"\n"))
	p := logstest.Start(t, append(s.args, "--bootstrap-file="+token, "--logging-format=json", "-v=9")...)
	select {
	case bearer := <-s.bearers:
		if !strings.Contains(bearer, ofBootstrap) {
			t.Errorf("the cloud saw %q", bearer)
		}
	case <-time.After(3 * time.Minute):
		t.Fatalf("the hub does not use its token:\n%s", p.Log())
	}
	p.UntilSaid("is refused: it has expired")
	_ = p.Stop() // it had no certificate yet
	logstest.Entries(t, p.Log())
	noneOf(t, p.Log(), ofBootstrap, "0123456789abcdef")
}

func noneOf(t *testing.T, log string, secrets ...string) {
	t.Helper()
	for line := range strings.SplitSeq(log, "\n") {
		for _, secret := range secrets {
			if strings.Contains(line, secret) {
				t.Errorf("%q is in the log: %s", secret, line)
			}
		}
	}
}

// TestHowMuchIsLogged: -v says it, and the file changes it while the hub runs.
func TestHowMuchIsLogged(t *testing.T) {
	s := newSite(t)
	const head = "apiVersion: hub.openyurt.io/v1alpha1\nkind: YurtHubConfiguration\nloggingFormat: json\n"
	file := s.file("config.yaml", []byte(head))
	p := logstest.Start(t, append(s.certified(), "--config="+file)...)
	p.UntilSaid(serving)
	p.UntilSaid("Link is up")
	quiet := logstest.Entries(t, p.Log())
	if highest := logstest.Highest(quiet); highest != 0 {
		t.Errorf("with nothing said, level %d is logged", highest)
	}
	s.file("config.yaml", []byte(head+"verbosity: 7\n"))
	p.UntilSaid("Applied the changed configuration file")
	p.Until("a line of a higher level", func(line string) bool { return logstest.Highest(logstest.Entries(t, line)) > 0 })
	if err := p.Stop(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	logstest.Entries(t, p.Log())
}

// TestWhatIsWrongIsToldInJSON, if the hub is to log so.
func TestWhatIsWrongIsToldInJSON(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: hub.openyurt.io/v1alpha1\nkind: YurtHubConfiguration\n"+
		"loggingFormat: json\nnodeNames: n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--logging-format=json"}, "--node-name is required"},
		{[]string{"--bogus", "--logging-format=json"}, "--bogus"},
		{[]string{"--config=" + file}, "nodeNames"},
	} {
		log := logstest.Ends(t, tt.args...)
		all := logstest.Entries(t, log)
		if len(all) == 0 || !strings.Contains(fmt.Sprint(all[len(all)-1]["err"]), tt.want) {
			t.Errorf("%v: %s", tt.args, log)
		}
	}
	if log := logstest.Ends(t, "--logging-format=xml"); log != "yurthub: --logging-format \"xml\": want text or json" {
		t.Errorf("a form that is none: %s", log)
	}
}
