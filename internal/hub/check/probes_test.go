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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
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
	s := w.probe(w.cloud(apiServer, crt, key))
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
			s := w.probe(w.cloud(tt.serve, crt, key))
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
			s := w.probe("https://" + l.Addr().String())
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
		if s := w.probe(address); !s.Verified ||
			!strings.HasSuffix(s.Why, "does not answer requests: no answer in time") {
			t.Errorf("%+v: want no answer", s)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		w := newWorld(t)
		address := fmt.Sprintf("https://127.0.0.1:%d", freePort(t))
		if s := w.probe(address); !strings.Contains(s.Why, "refuses connections") {
			t.Errorf("%+v: want that it refuses", s)
		}
	})
	for _, address := range []string{"http://127.0.0.1:1", "127.0.0.1:1", "https://", "https://u:p@h", "%"} {
		if s := newWorld(t).probe(address); !strings.Contains(s.Why, "is not an address") {
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
	s := w.probe(address)
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
		if p.probe(t.Context()); p.Held != want.Held || p.Trouble != want.Trouble {
			t.Errorf("%+v, want %+v", p, want)
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
		if d := lookAtDir(flagCache, path); d.Trouble != "" || d.Free <= 0 {
			t.Errorf("%s: %+v", path, d)
		}
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "x"), "relative", "/proc/1/none"} {
		if d := lookAtDir(flagCache, path); d.Trouble == "" {
			t.Errorf("%s: %+v", path, d)
		}
	}
}

func TestKubelet(t *testing.T) {
	for want, args := range map[string][]string{
		"/b": {"--kubeconfig=/a", "-v=2", "--kubeconfig=/b"},
		"/c": {"--v", "1", "--fail-swap-on", "--kubeconfig", "/c", "--node-labels=a=b,c=d"},
		"/d": {"--kubeconfig=/d", "--rotate-certificates=perhaps"},
		"":   {"--kubeconfigs=/d", "--config", "/e", "--kubeconfig"},
	} {
		if k := kubeletOf(args); k.Config != want || !k.Running {
			t.Errorf("%v: %+v, want %q", args, k, want)
		}
	}
	w := newWorld(t)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusInternalServerError)
	}))
	defer s.Close()
	if k := findKubelet(t.Context(), s.URL, w.cfg.Step); !strings.HasPrefix(k.Health, "status 500") {
		t.Errorf("%+v", k)
	}
	if k := findKubelet(t.Context(), fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), w.cfg.Step); k.Health != "" {
		t.Errorf("without a port of its health: %+v", k)
	}
	for content, want := range map[string]Kubelet{
		`{current-context: c, contexts: [{name: c, context: {cluster: c}}], ` +
			`clusters: [{name: c, cluster: {server: "https://127.0.0.1:10261/"}}]}`: {Server: "https://127.0.0.1:10261"},
		"secret: [of no use": {Trouble: "it is no kubeconfig with a current context"},
		"current-context: c": {Trouble: "it is no kubeconfig with a current context"},
	} {
		want.Running, want.Config = true, w.file("kc", []byte(content))
		if k := kubeletOf([]string{"--kubeconfig=" + want.Config}); k != want {
			t.Errorf("%+v, want %+v", k, want)
		}
	}
	if k := kubeletOf([]string{"--kubeconfig=" + filepath.Join(w.dir, "none")}); k.Trouble != "it is not there" {
		t.Errorf("%+v", k)
	}
	for settings, want := range map[string]bool{
		"rotateCertificates: true": true, "rotateCertificates: false": false, "{}": false,
	} {
		config := w.file("kubelet.yaml", []byte(settings))
		if k := kubeletOf([]string{"--config=" + config}); k.Rotates != want {
			t.Errorf("%s: rotates %v", settings, k.Rotates)
		}
		if kubeletOf([]string{"--config=" + config, "--rotate-certificates=false"}).Rotates {
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
		f := gather(t.Context(), Config{}, []probe{
			{"disk", func(context.Context) func(*Facts) { <-release; return func(*Facts) {} }},
			{"hub", func(context.Context) func(*Facts) { return func(f *Facts) { f.Hub.Nobody = true } }},
			{"cloud", func(ctx context.Context) func(*Facts) {
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

// TestAKubeletInAContainerIsAnothers: nodes can be containers of this one.
func TestAKubeletInAContainerIsAnothers(t *testing.T) {
	if !ofThisNode(os.Getpid()) || ofThisNode(1<<30) {
		t.Errorf("this process: %t; one that has ended: %t", ofThisNode(os.Getpid()), ofThisNode(1<<30))
	}
	sleep := exec.CommandContext(t.Context(), "sleep", "60")
	sleep.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 { // a user makes namespaces in one of his own
		sleep.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if err := sleep.Start(); err != nil {
		t.Skipf("this machine makes no namespace of processes: %v", err)
	}
	defer func() { _, _ = sleep.Process.Kill(), sleep.Wait() }()
	if ofThisNode(sleep.Process.Pid) {
		t.Error("a process in a container is one of this node")
	}
}
