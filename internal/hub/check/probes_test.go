package check

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
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

	"yurtcoordinator/internal/hub/trust"
)

var discard = log.New(io.Discard, "", 0)

const (
	review = `{"status":{"userInfo":{"username":"system:node:%s","groups":["system:nodes"]}}}`
	node   = `{"metadata":{"labels":{"apps.openyurt.io/nodepool":"p1"}},` +
		`"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
)

// apiServer answers as an API server that knows the node n1.
func apiServer(w http.ResponseWriter, r *http.Request) {
	known := len(r.TLS.PeerCertificates) > 0
	switch {
	case r.URL.Path == "/readyz":
		fmt.Fprintln(w, "ok")
	case r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" && r.Method == http.MethodPost && known:
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, review, "n1")
	case r.URL.Path == "/api/v1/nodes/n1" && known:
		fmt.Fprint(w, node)
	default:
		http.Error(w, `{"message":"user \"system:anonymous\" cannot"}`, http.StatusForbidden)
	}
}

func TestServerReached(t *testing.T) {
	w := newWorld(t)
	crt, key := w.ca.issue(t, nil)
	s := probeServer(t.Context(), w.cfg, nameCloud, w.cloud(apiServer, crt, key))
	if s.Problem != "" || !s.Verified || s.User != "system:node:n1" || s.Node != (Node{true, true, "p1", "True"}) {
		t.Errorf("%+v", s)
	}
	if skew := s.At.Sub(s.Date).Abs(); skew > 5*time.Second {
		t.Errorf("a skew of %s between a clock and itself", skew)
	}
}

// TestToldCoordinator: a coordinator of which the cloud told has a name and an authority of its own.
func TestToldCoordinator(t *testing.T) {
	w := newWorld(t)
	const name = "p1.yurt-coordinator-apiserver.kube-system.svc"
	pools := newAuthority(t)
	crt, key := pools.issue(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{name} })
	address := w.cloud(apiServer, crt, key)
	for _, tt := range []struct {
		ca   []byte
		name string
		want Problem
	}{
		{pools.pem(), name, ""}, {pools.pem(), "p2" + name[2:], WrongName}, {pools.pem(), "", WrongName},
		{w.ca.pem(), name, UnknownAuthority}, {nil, name, UnknownAuthority},
	} {
		w.cfg.CoordinatorCA, w.cfg.CoordinatorName = tt.ca, tt.name
		if s := probeServer(t.Context(), w.cfg, nameCoordinator, address); s.Problem != tt.want || s.Verified != (tt.want == "") {
			t.Errorf("by the name %q: %+v, want %q", tt.name, s, tt.want)
		}
	}
}

// TestServerProblems: each obstacle has its name.
func TestServerProblems(t *testing.T) {
	other := newAuthority(t)
	before := func(d time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = c.NotBefore.Add(d), c.NotBefore.Add(d+time.Minute)
		}
	}
	for _, tt := range []struct {
		name   string
		ca     *authority
		change func(*x509.Certificate)
		serve  http.HandlerFunc
		want   Problem
		say    string
	}{
		{"other authority", other, nil, apiServer, UnknownAuthority, ""},
		{"expired", nil, before(-time.Hour), apiServer, Expired, ""},
		{"not yet valid", nil, before(2 * time.Hour), apiServer, NotYetValid, ""},
		{"other address", nil, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 9)} }, apiServer,
			WrongName, "10.0.0.9"},
		{"a client's", nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
			apiServer, BadCertificate, ""},
		{"not ready", nil, nil, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "[+]ping ok\n[-]etcd failed: reason withheld\n", http.StatusInternalServerError)
		}, NotReady, "etcd"},
		{"unauthorized", nil, nil, func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}, Unauthorized, "401"},
		{"anonymous", nil, nil, func(w http.ResponseWriter, r *http.Request) {
			r.TLS.PeerCertificates = nil
			apiServer(w, r)
		}, Unauthorized, "403"},
		{"somebody else", nil, nil, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusCreated)
				fmt.Fprintf(w, review, "n2")
			}
		}, OtherUser, ""},
		{"huge answers", nil, nil, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 * maxAnswer / 1024 {
				if _, err := w.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
		}, NoAnswer, "longer than"},
		{"huge header", nil, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 128<<10))
		}, NoAnswer, ""},
		{"hangs up", nil, nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, NoAnswer, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ca := w.ca
			if tt.ca != nil {
				ca = tt.ca
			}
			crt, key := ca.issue(t, tt.change)
			s := probeServer(t.Context(), w.cfg, nameCloud, w.cloud(tt.serve, crt, key))
			if s.Problem != tt.want || !strings.Contains(s.Detail, tt.say) || len(s.Detail) > maxText+3 {
				t.Errorf("%+v: want %q with %q", s, tt.want, tt.say)
			}
		})
	}
}

// TestServerSilent: servers that say nothing, or nothing sensible, are told apart by the step, in bounded time.
func TestServerSilent(t *testing.T) {
	for _, tt := range []struct {
		name string
		want Problem
		do   func(*testing.T, net.Conn)
	}{
		{"says nothing", NoHandshake, func(*testing.T, net.Conn) {}},
		{"speaks HTTP", NoHandshake, func(_ *testing.T, c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }},
		{"hangs up", NoHandshake, func(_ *testing.T, c net.Conn) { c.Close() }},
		{"drips", NoHandshake, func(_ *testing.T, c net.Conn) {
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
			s := probeServer(t.Context(), w.cfg, nameCloud, "https://"+l.Addr().String())
			if s.Problem != tt.want || s.Detail == "" {
				t.Errorf("%+v: want %q", s, tt.want)
			}
		})
	}
	t.Run("says nothing over TLS", func(t *testing.T) {
		w := newWorld(t)
		w.brief()
		crt, key := w.ca.issue(t, nil)
		address := w.cloud(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, crt, key)
		if s := probeServer(t.Context(), w.cfg, nameCloud, address); s.Problem != NoAnswer || !s.Verified ||
			s.Detail != "no answer in time" {
			t.Errorf("%+v: want %q", s, NoAnswer)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		w := newWorld(t)
		address := fmt.Sprintf("https://127.0.0.1:%d", freePort(t))
		if s := probeServer(t.Context(), w.cfg, nameCloud, address); s.Problem != Refused {
			t.Errorf("%+v: want %q", s, Refused)
		}
	})
	for _, address := range []string{"http://127.0.0.1:1", "127.0.0.1:1", "https://", "https://u:p@h", "%"} {
		if s := probeServer(t.Context(), newWorld(t).cfg, nameCloud, address); s.Problem != BadAddress {
			t.Errorf("%q: %+v: want %q", address, s, BadAddress)
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
	s := probeServer(t.Context(), w.cfg, nameCloud, address)
	if asked.Load() != 1 || s.Problem != UnknownAuthority {
		t.Errorf("asked %d times: %+v", asked.Load(), s)
	}
	if skew := s.Date.Sub(s.At); skew < 59*time.Minute || skew > 61*time.Minute {
		t.Errorf("skew %s, want an hour", skew)
	}
}

// TestServerThatWantsACertificate: the server refuses anonymous clients in the handshake, as a coordinator may.
func TestServerThatWantsACertificate(t *testing.T) {
	w := newWorld(t)
	crt, key := w.ca.issue(t, nil)
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		ca   *authority
		want Problem
	}{{"known", w.ca, ""}, {"not known", newAuthority(t), RefusedPair}, {"without one", w.ca, ""}} {
		if tt.name == "without one" {
			if err := os.Remove(filepath.Join(w.cfg.CertDir, "client.pem")); err != nil {
				t.Fatal(err)
			}
		}
		roots := x509.NewCertPool()
		roots.AddCert(tt.ca.cert)
		s := httptest.NewUnstartedServer(http.HandlerFunc(apiServer))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}
		s.Config.ErrorLog = discard
		s.StartTLS()
		if got := probeServer(t.Context(), w.cfg, nameCoordinator, s.URL); got.Problem != tt.want {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.want)
		}
		s.Close()
	}
}

func TestHub(t *testing.T) {
	const status = `{"node":"n1","cloud":"up","coordinator":"none","disk":{"bytes":7},"unknown":[1]}`
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
	l := listen(t)
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	taken := Port{Address: l.Addr().String()}
	lookAtPort(t.Context(), &taken, listeners())
	if want := fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), os.Getpid()); !taken.Held ||
		taken.Holder != want {
		t.Errorf("%+v, want held by %s", taken, want)
	}
	free := Port{Address: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	lookAtPort(t.Context(), &free, listeners())
	if free.Held || free.Trouble != "" {
		t.Errorf("%+v, want free", free)
	}
	foreign := Port{Address: "192.0.2.1:10261"}
	lookAtPort(t.Context(), &foreign, listeners())
	if foreign.Trouble == "" {
		t.Errorf("%+v: one can listen at an address of documentation", foreign)
	}
}

func TestParseListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2815 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:2816 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: rubbish
   3: 00000000:2815 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713
`
	got := parseListeners(table)
	if len(got) != 1 || !slices.Equal(got[10261], []string{"4711", "4713"}) {
		t.Errorf("%v", got)
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
	w.cfg.KubeletKubeconfig = w.file("kubelet.conf", []byte(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://cloud:6443", certificate-authority: ca.crt}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {client-certificate: kubelet.pem, client-key: kubelet.pem}}]
`))
	k, s := readKeys(w.cfg)
	if !k.KubeletPair.Present || k.KubeletPair.CommonName != "system:node:n1" || k.CA.Path != w.cfg.KubeletKubeconfig ||
		s.cloud == nil || s.pair == nil || s.with != w.cfg.KubeletKubeconfig || !k.Cert.Missing {
		t.Errorf("%+v %+v", k, s)
	}
	w.cfg.CACertHashes = []string{"sha256:00", strings.ToUpper(w.ca.hash())}
	if k, _ := readKeys(w.cfg); !k.Pinned || k.CAHash != w.ca.hash() {
		t.Errorf("authority %s is not among %v", k.CAHash, w.cfg.CACertHashes)
	}
	w.cfg.CACertHashes = []string{"sha256:00"}
	if k, _ := readKeys(w.cfg); k.Pinned {
		t.Error("pinned by another hash")
	}
	for content, trouble := range map[string]string{
		"abcdef.0123456789abcdef\n": "", "abcdef": "neither", string(must(os.ReadFile(w.cfg.KubeletKubeconfig))): "",
	} {
		w.file("token", []byte(content))
		if k, _ := readKeys(w.cfg); (k.Bootstrap.Trouble == "") != (trouble == "") ||
			!strings.Contains(k.Bootstrap.Trouble, trouble) {
			t.Errorf("token %q: %+v", content, k.Bootstrap)
		}
	}
}

// TestSuccessors: an authority that the hub has learned of from the cloud needs no hash, while the hashes are what they were.
func TestSuccessors(t *testing.T) {
	w := newWorld(t)
	first, next := newAuthority(t), newAuthority(t)
	w.cfg.CAFile = ""
	w.file("pki/ca.crt", next.pem())
	pin := must(hex.DecodeString(strings.TrimPrefix(first.hash(), "sha256:")))
	notes := func(pins string) {
		w.file("pki/ca.json", must(trust.Notes{Pins: pins}.Encode(trust.Set{Authorities: []trust.Authority{{Cert: next.cert}}})))
	}
	for _, tt := range []struct {
		name, pins string
		hash       string
		want       bool
	}{
		{"learned", fmt.Sprintf("%x", sha256.Sum256(pin)), first.hash(), true},
		{"other hashes now", fmt.Sprintf("%x", sha256.Sum256(pin)), "sha256:" + strings.Repeat("0a", 32), false},
		{"learned without hashes", "none", first.hash(), false},
	} {
		notes(tt.pins)
		w.cfg.CACertHashes = []string{tt.hash}
		if k, s := readKeys(w.cfg); k.Pinned != tt.want || (s.cloud != nil && s.cloud.Equal(x509.NewCertPool())) == tt.want {
			t.Errorf("%s: pinned %v", tt.name, k.Pinned)
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
	if d := probeDir(flagCache, filepath.Join(dir, "a", "b")); !d.Missing || d.At != dir || !d.Writable || d.Free <= 0 ||
		d.Trouble != "" {
		t.Errorf("to be made: %+v", d)
	}
	file := filepath.Join(dir, "f.corrupt")
	if err := os.WriteFile(file, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "x"), "relative"} {
		if d := probeDir(flagCache, path); d.Trouble == "" {
			t.Errorf("%s: %+v", path, d)
		}
	}
	if d := probeDir(flagCache, dir); d.Missing || d.Used != 100 || !d.Corrupt || d.Locked {
		t.Errorf("%+v", d)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if d := probeDir(flagCache, dir); !d.Locked || !strings.Contains(d.Holder, fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("locked by this process, and found %+v", d)
	}
}

func TestParseLocks(t *testing.T) {
	const table = "1: POSIX  ADVISORY  WRITE 7 fe:01:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 812 fe:01:12 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 0 fe:01:12 0 EOF\n4: FLOCK  ADVISORY  WRITE 813 fe:01:112 0 EOF\n5: x\n"
	if pids := parseLocks([]byte(table), 12); !slices.Equal(pids, []string{"812"}) {
		t.Errorf("%v", pids)
	}
}

// TestServing: the certificate that kubelet serves with is where its command line and its settings say.
func TestServing(t *testing.T) {
	w := newWorld(t)
	kubelets, _ := newAuthority(t).issue(t, func(*x509.Certificate) {})
	signed, key := w.ca.issue(t, func(*x509.Certificate) {})
	w.cfg.CAFile = w.file("ca.crt", w.ca.pem())
	dir := filepath.Dir(w.cfg.CAFile)
	w.file(nameOwn, kubelets)
	w.file(nameBootstrapped, append(signed, key...))
	w.file("named.crt", kubelets)
	w.file("key-first.crt", append(key, signed...))
	for name, tt := range map[string]struct {
		flags, settings, file string
		signed, bootstrapped  bool
		trouble               string
	}{
		"its own":      {"--cert-dir=" + dir, "{}", nameOwn, false, false, ""},
		"bootstrapped": {"--cert-dir=" + dir, "serverTLSBootstrap: true", nameBootstrapped, true, true, ""},
		"bootstrapped by flag": {"--rotate-server-certificates=true --cert-dir=" + dir, "{}", nameBootstrapped, true,
			true, ""},
		"not bootstrapped": {"--rotate-server-certificates=false --cert-dir=" + dir, "serverTLSBootstrap: true",
			nameOwn, false, false, ""},
		"named":         {"--cert-dir=" + dir, "tlsCertFile: named.crt", "named.crt", false, false, ""},
		"named by flag": {"--tls-cert-file=" + dir + "/named.crt", "tlsCertFile: /x", "named.crt", false, false, ""},
		"a key first": {"--tls-cert-file=" + dir + "/key-first.crt", "{}", "key-first.crt", false, false,
			"does not begin"},
		"settings that are none":  {"--cert-dir=" + dir, "{", "", false, false, "no YAML"},
		"none, in another folder": {"--cert-dir=" + dir + "/no", "{}", "no/" + nameOwn, false, false, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			argv := append(strings.Fields("kubelet --config="+w.file("kubelet.yaml", []byte(tt.settings))),
				strings.Fields(tt.flags)...)
			s := serving(argv, w.cfg)
			want := ""
			if tt.file != "" {
				want = filepath.Join(dir, tt.file)
			}
			if s.File.Path != want || s.Signed != tt.signed || s.Bootstrapped != tt.bootstrapped ||
				(s.Digest == "") != (tt.trouble != "") ||
				!strings.Contains(s.File.Trouble, tt.trouble) && !s.File.Missing {
				t.Errorf("%+v, want %s", s, want)
			}
		})
	}
	none := serving([]string{"kubelet", "--config=/nowhere/kubelet.yaml"}, w.cfg)
	if !strings.Contains(none.File.Trouble, "not there") {
		t.Errorf("without settings: %+v", none)
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
	w.cfg.KubeletUses = w.file("kc", []byte(`{current-context: c, contexts: [{name: c, context: {cluster: c}}], `+
		`clusters: [{name: c, cluster: {server: "http://127.0.0.1:10261/"}}]}`))
	var f Facts
	probeKubelet(t.Context(), w.cfg)(&f)
	if f.Kubelet.Server != "http://127.0.0.1:10261" || !strings.HasPrefix(f.Kubelet.Health, "status 500") ||
		f.Kubelet.NoHealth {
		t.Errorf("%+v", f.Kubelet)
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
	w.cfg.CertDir = filepath.Dir(w.file("local.crt", []byte("a\n")))
	w.file("kubelet.token", []byte("t"))
	const local = "certificate-authority-data: YQo="
	for name, tt := range map[string]struct{ cluster, user, want string }{
		"known":             {local, "token: t", ""},
		"known by files":    {"certificate-authority: local.crt", "tokenFile: kubelet.token", ""},
		"without a token":   {local, "", "has no token"},
		"another token":     {local, "token: secret", "its token is not"},
		"no such file":      {local, "tokenFile: /none", "/none"},
		"another authority": {"certificate-authority-data: Yg==", "token: t", "its certificate-authority is not"},
		"no authority":      {"insecure-skip-tls-verify: true", "token: t", "has no certificate-authority"},
	} {
		w.cfg.KubeletUses = w.file("kc", fmt.Appendf(nil,
			`{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], `+
				`clusters: [{name: c, cluster: {server: "https://127.0.0.1:10261", %s}}], users: [{name: u, user: {%s}}]}`,
			tt.cluster, tt.user))
		probeKubelet(t.Context(), w.cfg)(&f)
		if got := f.Kubelet.Unproved; (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) ||
			strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	w.cfg.KubeletUses = w.file("kc", []byte("secret: [of no use"))
	probeKubelet(t.Context(), w.cfg)(&f)
	if f.Kubelet.Config.Trouble == "" || strings.Contains(f.Kubelet.Config.Trouble, "secret") {
		t.Errorf("%+v", f.Kubelet)
	}
}

// TestEverythingDown: a check of a node on which nothing works ends, says so, and tells no secret.
func TestEverythingDown(t *testing.T) {
	w := newWorld(t)
	w.brief()
	w.file("token", []byte("abcdef.0123456789abcdef"))
	silent := "https://" + listen(t).Addr().String()
	w.cfg.Servers = []string{silent, fmt.Sprintf("https://127.0.0.1:%d", freePort(t)), "https://nowhere.invalid:6443"}
	w.cfg.Coordinators = []string{silent}
	findings := Judge(Gather(t.Context(), w.cfg))
	text := table(t, findings)
	if !Failed(findings) {
		t.Errorf("nothing is wrong:\n%s", text)
	}
	for _, want := range []string{"fail  yurthub", "does not speak TLS", "refuses connections", "nowhere.invalid",
		"warn  coordinator"} {
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
				return func(f *Facts) { f.Cloud = append(f.Cloud, Server{Problem: NoAnswer}) }
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
