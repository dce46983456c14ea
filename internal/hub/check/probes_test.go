package check

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var discard = log.New(io.Discard, "", 0)

const (
	node = `{"metadata":{"labels":{"apps.openyurt.io/nodepool":"p1"}},` +
		`"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
)

// apiServer answers as an API server that knows the node n1.
func apiServer(w http.ResponseWriter, r *http.Request) {
	known := len(r.TLS.PeerCertificates) > 0
	switch {
	case r.URL.Path == "/readyz":
		fmt.Fprintln(w, "ok")
	case r.URL.Path == "/api/v1/nodes/n1" && known:
		fmt.Fprint(w, node)
	default:
		http.Error(w, `{"message":"user \"system:anonymous\" cannot"}`, http.StatusForbidden)
	}
}

func TestServerReached(t *testing.T) {
	w := newWorld(t)
	crt, key := w.ca.issue(t, nil)
	s := probeServer(t.Context(), w.cfg, w.cloud(apiServer, crt, key))
	if s.Why != "" || !s.Verified || s.Node != (Node{true, true, "p1", "True"}) {
		t.Errorf("%+v", s)
	}
	if skew := s.At.Sub(s.Date).Abs(); skew > 5*time.Second {
		t.Errorf("a skew of %s between a clock and itself", skew)
	}
}

// TestServerProblems: each obstacle has words of its own, and something to do.
func TestServerProblems(t *testing.T) {
	other := newAuthority(t)
	before := func(d time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = c.NotBefore.Add(d), c.NotBefore.Add(d+time.Minute)
		}
	}
	answers := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for _, tt := range []struct {
		name   string
		ca     *authority
		change func(*x509.Certificate)
		serve  http.HandlerFunc
		say    string
	}{
		{"other authority", other, nil, apiServer, "is not signed by the authority in"},
		{"expired", nil, before(-time.Hour), apiServer, "expired at"},
		{"not yet valid", nil, before(2 * time.Hour), apiServer, "begins at"},
		{"other address", nil, func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 9)}
		}, apiServer, "10.0.0.9"},
		{"a client's", nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
			apiServer, "is not valid"},
		{"not ready", nil, nil, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "[+]ping ok\n[-]etcd failed: reason withheld\n", http.StatusInternalServerError)
		}, "not ready: status 500: etcd"},
		{"unauthorized", nil, nil, answers(http.StatusUnauthorized), "does not take this node for system:node:n1"},
		{"anonymous", nil, nil, func(w http.ResponseWriter, r *http.Request) {
			r.TLS.PeerCertificates = nil
			apiServer(w, r)
		}, "status 403"},
		{"huge answers", nil, nil, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 * maxAnswer / 1024 {
				if _, err := w.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
		}, "longer than"},
		{"huge header", nil, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 128<<10))
		}, "does not answer requests"},
		{"hangs up", nil, nil, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "does not answer requests"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ca := w.ca
			if tt.ca != nil {
				ca = tt.ca
			}
			crt, key := ca.issue(t, tt.change)
			s := probeServer(t.Context(), w.cfg, w.cloud(tt.serve, crt, key))
			if !strings.Contains(s.Why, tt.say) || s.Do == "" {
				t.Errorf("%+v: want it to say %q", s, tt.say)
			}
		})
	}
}

// TestServerSilent: servers that say nothing, or nothing sensible, are told apart by the step, in bounded time.
func TestServerSilent(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*testing.T, net.Conn)
	}{
		{"says nothing", func(*testing.T, net.Conn) {}},
		{"speaks HTTP", func(_ *testing.T, c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }},
		{"hangs up", func(_ *testing.T, c net.Conn) { c.Close() }},
		{"drips", func(_ *testing.T, c net.Conn) {
			for {
				if _, err := c.Write([]byte{22, 3, 3, 0xff}[:1]); err != nil {
					return
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.brief()
			l := listen(t)
			go accept(t, l, tt.do)
			s := probeServer(t.Context(), w.cfg, "https://"+l.Addr().String())
			if !strings.Contains(s.Why, "does not speak TLS") {
				t.Errorf("%+v: want that it does not speak TLS", s)
			}
		})
	}
	t.Run("says nothing over TLS", func(t *testing.T) {
		w := newWorld(t)
		w.brief()
		crt, key := w.ca.issue(t, nil)
		address := w.cloud(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, crt, key)
		if s := probeServer(t.Context(), w.cfg, address); !s.Verified ||
			!strings.HasSuffix(s.Why, "does not answer requests: no answer in time") {
			t.Errorf("%+v: want no answer", s)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		w := newWorld(t)
		address := fmt.Sprintf("https://127.0.0.1:%d", freePort(t))
		if s := probeServer(t.Context(), w.cfg, address); !strings.Contains(s.Why, "refuses connections") {
			t.Errorf("%+v: want that it refuses", s)
		}
	})
	for _, address := range []string{"http://127.0.0.1:1", "127.0.0.1:1", "https://", "https://u:p@h", "%"} {
		if s := probeServer(t.Context(), newWorld(t).cfg, address); !strings.Contains(s.Why, "is not an address") {
			t.Errorf("%q: %+v: want that it is no address", address, s)
		}
	}
}

func accept(t *testing.T, l net.Listener, do func(*testing.T, net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
		go do(t, conn)
	}
}

// TestUntrustedServerLearnsNothing: a server that cannot prove to be the cloud is asked only for the time, anonymously.
func TestUntrustedServerLearnsNothing(t *testing.T) {
	w := newWorld(t)
	w.file("token", []byte("abcdef.0123456789abcdef"))
	crt, key := newAuthority(t).issue(t, nil)
	var asked atomic.Int32
	hourAhead := time.Now().Add(time.Hour)
	address := w.cloud(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if len(r.TLS.PeerCertificates) > 0 || r.Header.Get("Authorization") != "" || r.Method != http.MethodGet {
			t.Errorf("a server that is not verified got %s %v with %d certificates", r.Method, r.Header,
				len(r.TLS.PeerCertificates))
		}
		rw.Header().Set("Date", hourAhead.UTC().Format(http.TimeFormat))
		http.Redirect(rw, r, "/elsewhere", http.StatusFound)
	}, crt, key)
	s := probeServer(t.Context(), w.cfg, address)
	if asked.Load() != 1 || !strings.Contains(s.Why, "is not signed") {
		t.Errorf("asked %d times: %+v", asked.Load(), s)
	}
	if skew := s.Date.Sub(s.At); skew < 59*time.Minute || skew > 61*time.Minute {
		t.Errorf("skew %s, want an hour", skew)
	}
}

func TestHub(t *testing.T) {
	const status = `{"node":"n1","cloud":"up","coordinator":"none","pods":7,"disk":{"bytes":7},"unknown":[1]}`
	for _, tt := range []struct {
		name    string
		healthz int
		status  string
		trouble string
	}{
		{"fine", 200, status, ""},
		{"ill", 500, status, "status 500"},
		{"something else", 200, "<html>", "not a hub's"},
		{"another JSON", 200, `{"cloud":5}`, "not a hub's"},
		{"huge", 200, strings.Repeat(" ", 2*maxAnswer), "longer than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/healthz" {
					rw.WriteHeader(tt.healthz)
					return
				}
				fmt.Fprint(rw, tt.status)
			}))
			defer s.Close()
			w.cfg.HealthPort = port(t, s.Listener)
			h := askHub(t.Context(), w.cfg)
			if h.Nobody || (h.Trouble == "") != (tt.trouble == "") || !strings.Contains(h.Trouble, tt.trouble) {
				t.Errorf("%+v, want trouble %q", h, tt.trouble)
			}
			if tt.trouble == "" && (h.Status.Node != "n1" || h.Status.Disk == nil || h.Status.Disk.Bytes != 7) {
				t.Errorf("%+v", h.Status)
			}
		})
	}
	w := newWorld(t)
	if h := askHub(t.Context(), w.cfg); !h.Nobody {
		t.Errorf("%+v where nobody is", h)
	}
	w.brief()
	w.cfg.HealthPort = port(t, listen(t)) // takes connections, says nothing
	if h := askHub(t.Context(), w.cfg); h.Trouble != "no answer in time" {
		t.Errorf("%+v of one that says nothing", h)
	}
}

func TestPorts(t *testing.T) {
	for address, want := range map[string]Port{
		listen(t).Addr().String():                {Held: true},
		fmt.Sprintf("127.0.0.1:%d", freePort(t)): {},
		"192.0.2.1:10261":                        {Trouble: "bind: cannot assign requested address"},
	} {
		p := Port{Address: address}
		if p.look(t.Context()); p.Held != want.Held || p.Trouble != want.Trouble {
			t.Errorf("%+v, want %+v", p, want)
		}
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(t)
	otherKey := func() []byte { _, key := w.ca.issue(t, nil); return key }()
	crt, key := w.ca.issue(t, ofNode("n1"))
	fifo := filepath.Join(w.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, cert, key, trouble string
	}{
		{"fine", w.file("c", crt), w.file("k", key), ""},
		{"other key", w.file("c", crt), w.file("k2", otherKey), "belong"},
		{"no certificate", w.file("c3", []byte("x")), w.file("k", key), "PEM"},
		{"empty", w.file("c4", []byte("\n")), w.file("k", key), "empty"},
		{"huge", w.file("c5", make([]byte, maxFile+1)), w.file("k", key), "larger"},
		{"directory", w.dir, w.file("k", key), "not a file"},
		{"pipe that nobody writes to", fifo, w.file("k", key), "not a file"},
	} {
		cfg := w.cfg
		cfg.CertFile, cfg.KeyFile = tt.cert, tt.key
		k, s := readKeys(cfg)
		if (k.Cert.Trouble == "") != (tt.trouble == "") || !strings.Contains(k.Cert.Trouble, tt.trouble) {
			t.Errorf("%s: %+v, want trouble %q", tt.name, k.Cert, tt.trouble)
		}
		if (s.pair != nil) != (tt.trouble == "") {
			t.Errorf("%s: pair %v", tt.name, s.pair != nil)
		}
	}
}

func TestMeans(t *testing.T) {
	w := newWorld(t)
	if err := os.Remove(filepath.Join(w.dir, "pki/client.pem")); err != nil {
		t.Fatal(err)
	}
	crt, key := w.ca.issue(t, ofNode("n1"))
	w.file("kubelet.pem", append(crt, key...))
	w.cfg.CAFile = ""
	w.cfg.Identity.KubeletKubeconfig = w.file("kubelet.conf", []byte(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://cloud:6443", certificate-authority: ca.crt}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {client-certificate: kubelet.pem, client-key: kubelet.pem}}]
`))
	k, s := readKeys(w.cfg)
	if !k.KubeletPair.Present || k.KubeletPair.CommonName != "system:node:n1" || k.CA.Path != w.cfg.Identity.KubeletKubeconfig ||
		s.cloud == nil || s.pair == nil || s.with != w.cfg.Identity.KubeletKubeconfig || !k.Cert.Missing {
		t.Errorf("%+v %+v", k, s)
	}
	for content, trouble := range map[string]string{
		"abcdef.0123456789abcdef\n": "", "abcdef": "neither", string(must(os.ReadFile(w.cfg.Identity.KubeletKubeconfig))): "",
	} {
		w.file("token", []byte(content))
		if k, _ := readKeys(w.cfg); (k.Bootstrap.Trouble == "") != (trouble == "") ||
			!strings.Contains(k.Bootstrap.Trouble, trouble) {
			t.Errorf("token %q: %+v", content, k.Bootstrap)
		}
	}
}

func must(content []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return content
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "a", "b")} {
		if d := probeDir(flagCache, path); d.Trouble != "" || d.Free <= 0 {
			t.Errorf("%s: %+v", path, d)
		}
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "x"), "relative", "/proc/1/none"} {
		if d := probeDir(flagCache, path); d.Trouble == "" {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

func TestKubelet(t *testing.T) {
	for want, argv := range map[string][]string{
		"/b": {"kubelet", "--kubeconfig=/a", "--kubeconfig=/b"},
		"/c": {"kubelet", "--kubeconfig", "/c", "--v=1"},
		"":   {"kubelet", "--kubeconfigs=/d", "--config", "/e", "--kubeconfig"},
	} {
		if got := flagValue(argv, "kubeconfig"); got != want {
			t.Errorf("%v: %q, want %q", argv, got, want)
		}
	}
	w := newWorld(t)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter,
		_ *http.Request) {
		rw.WriteHeader(http.StatusInternalServerError)
	}))
	defer s.Close()
	w.cfg.KubeletHealth = s.URL
	var f Facts
	probeKubelet(t.Context(), w.cfg)(&f)
	if !strings.HasPrefix(f.Kubelet.Health, "status 500") || f.Kubelet.NoHealth {
		t.Errorf("%+v", f.Kubelet)
	}
	uses := w.file("kc", []byte(`{current-context: c, contexts: [{name: c, context: {cluster: c}}], `+
		`clusters: [{name: c, cluster: {server: "https://127.0.0.1:10261/"}}]}`))
	if k := kubeletOf([]string{"kubelet", "--kubeconfig=" + uses}); !k.Running || k.Server != "https://127.0.0.1:10261" ||
		!k.Config.fine() {
		t.Errorf("%+v", k)
	}
	uses = w.file("kc", []byte("secret: [of no use"))
	k := kubeletOf([]string{"kubelet", "--kubeconfig=" + uses})
	if k.Config.fine() || strings.Contains(k.Config.Trouble, "secret") {
		t.Errorf("%+v", k)
	}
	for settings, want := range map[string]bool{
		"rotateCertificates: true": true, "rotateCertificates: false": false, "{}": false,
	} {
		config := w.file("kubelet.yaml", []byte(settings))
		if got := rotates([]string{"kubelet", "--config=" + config}); got != want {
			t.Errorf("%s: rotates %v", settings, got)
		}
		if rotates([]string{"kubelet", "--config=" + config, "--rotate-certificates=false"}) {
			t.Errorf("%s, and false by flag: it rotates", settings)
		}
	}
}

// TestEverythingDown: a check of a node on which nothing works ends, says so, and tells no secret.
func TestEverythingDown(t *testing.T) {
	w := newWorld(t)
	w.brief()
	w.file("token", []byte("abcdef.0123456789abcdef"))
	silent := "https://" + listen(t).Addr().String()
	w.cfg.ServerAddresses = []string{silent, fmt.Sprintf("https://127.0.0.1:%d", freePort(t)), "https://nowhere.invalid:6443"}
	findings := Judge(Gather(t.Context(), w.cfg))
	text := table(t, findings)
	if !Failed(findings) {
		t.Errorf("nothing is wrong:\n%s", text)
	}
	for _, want := range []string{"fail  yurthub", "does not speak TLS", "refuses connections", "nowhere.invalid"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	pair := string(must(os.ReadFile(filepath.Join(w.dir, "pki/client.pem"))))
	_, key, _ := strings.Cut(pair, "EC PRIVATE KEY-----")
	for _, secret := range []string{"0123456789abcdef", strings.TrimSpace(key)[:20]} {
		if strings.Contains(text, secret) {
			t.Errorf("a secret in:\n%s", text)
		}
	}
}

// TestAProbeThatHangs: the results of the others are reported all the same.
func TestAProbeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		start := time.Now()
		f := gather(t.Context(), Config{}.withDefaults(), []probe{
			{"disk", func(context.Context, Config) func(*Facts) { <-release; return func(*Facts) {} }},
			{"hub", func(context.Context, Config) func(*Facts) { return func(f *Facts) { f.Hub.Nobody = true } }},
			{"cloud", func(ctx context.Context, _ Config) func(*Facts) {
				<-ctx.Done()
				return func(f *Facts) { f.Cloud = append(f.Cloud, Server{Why: "no answer"}) }
			}},
		})
		if took := time.Since(start); took != 15*time.Second {
			t.Errorf("took %s", took)
		}
		if !slices.Equal(f.Unanswered, []string{"disk"}) || !f.Hub.Nobody || len(f.Cloud) != 1 {
			t.Errorf("%+v", f)
		}
		close(release)
	})
}
