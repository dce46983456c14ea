package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
)

// seen answers with what the server saw of a request.
func seen(w http.ResponseWriter, r *http.Request) {
	h := r.Header.Clone()
	h.Set("Certificate", fmt.Sprint(len(r.TLS.PeerCertificates)))
	h.Set("Proto", r.Proto)
	h.Set("Host", r.Host)
	h.Set("Uri", r.RequestURI)
	_ = json.NewEncoder(w).Encode(h)
}

func TestWhatTravels(t *testing.T) {
	s, u := cloud(t, seen)
	address, _ := hub(t, Config{Cloud: u})
	host := strings.TrimPrefix(s.URL, "https://")
	for _, tc := range []struct {
		name   string
		uri    string
		header []string
		want   map[string]string
	}{
		{"without credentials: the node's", "/api/v1/pods", nil,
			map[string]string{"Certificate": "1", "Authorization": "", "Proto": "HTTP/2.0", "Host": host}},
		{"a token: nothing of the node's", "/api/v1/pods", []string{"Authorization", "Bearer abc"},
			map[string]string{"Certificate": "0", "Authorization": "Bearer abc"}},
		{"a bad token: nothing of the node's", "/api/v1/pods", []string{"Authorization", "x"},
			map[string]string{"Certificate": "0", "Authorization": "x"}},
		{"a blank one: the node's", "/api/v1/pods", []string{"Authorization", " "},
			map[string]string{"Certificate": "1", "Authorization": ""}},
		{"a token in a WebSocket protocol", "/api/v1/pods",
			[]string{"Sec-WebSocket-Protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj"},
			map[string]string{"Certificate": "0"}},
		{"impersonation with a token", "/api/v1/pods",
			[]string{"Authorization", "Bearer abc", "Impersonate-User", "bob"},
			map[string]string{"Certificate": "0", "Impersonate-User": "bob"}},
		{"forwarding headers", "/api/v1/pods",
			[]string{"X-Forwarded-For", "1.2.3.4", "Forwarded", "for=1.2.3.4", "X-Forwarded-Host", "h",
				"X-Forwarded-Proto", "p"},
			map[string]string{"X-Forwarded-For": "", "Forwarded": "", "X-Forwarded-Host": "", "X-Forwarded-Proto": ""}},
		{"hop by hop", "/api/v1/pods",
			[]string{"Connection", "Secret-Hop", "Secret-Hop", "1", "Te", "gzip", "Proxy-Authorization", "x"},
			map[string]string{"Secret-Hop": "", "Te": "", "Proxy-Authorization": ""}},
		{"the address as it was written", "/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db;c&x=%zz&follow", nil,
			map[string]string{"Uri": "/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db;c&x=%zz&follow"}},
		{"accepted encodings and types", "/api/v1/pods",
			[]string{"Accept-Encoding", "identity", "Accept", protobuf, "User-Agent", "kubelet/v1.36.3"},
			map[string]string{"Accept-Encoding": "identity", "Accept": protobuf, "User-Agent": "kubelet/v1.36.3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, body := ask(t, "GET", address+tc.uri, tc.header...)
			var got http.Header
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%s: %q: %v", res.Status, body, err)
			}
			for name, want := range tc.want {
				if got.Get(name) != want {
					t.Errorf("%s: %q, want %q", name, got.Get(name), want)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	var reached atomic.Int32
	_, u := cloud(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	address, _ := hub(t, Config{Cloud: u, Situation: Situation{Node: "n1"}})
	for _, header := range []string{
		"Impersonate-User", "impersonate-extra-scopes", "X-Remote-User", "X-Remote-Extra-A",
	} {
		res, body := ask(t, "GET", address+"/api/v1/secrets", header, "system:masters")
		s := statusOf(t, body)
		if res.StatusCode != http.StatusForbidden || s.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: %s %q, want 403", header, res.Status, body)
		}
	}
	if reached.Load() != 0 {
		t.Error("a refused request reached the cloud")
	}
}

func TestOwnLease(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "cloud") })
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok {
			t.Error("no RequestInfo in the context")
			return
		}
		fmt.Fprint(w, "heartbeat ", info.Verb, " ", info.Name)
	})
	address, _ := hub(t, Config{Cloud: u, OwnLease: own, Situation: Situation{Node: "n1"}})
	for node, want := range map[string]string{"n1": "heartbeat update n1", "n2": "cloud"} {
		if _, body := ask(t, "PUT", address+leases+node); body != want {
			t.Errorf("%s: answered by %q, want %q", node, body, want)
		}
	}
}

// someReplicas has one resource, and answers with what it was asked.
type someReplicas schema.GroupVersionResource

func (s someReplicas) Has(r schema.GroupVersionResource) bool {
	return r == schema.GroupVersionResource(s)
}

func (someReplicas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, _ := request.RequestInfoFrom(r.Context())
	_, _ = fmt.Fprint(w, "replica: ", info.Verb, " ", info.Namespace, "/", info.Name)
}

func TestReplicas(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "cloud") })
	address, _ := hub(t, Config{
		Cloud: u, Replicas: someReplicas{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	})
	const path = "/apis/discovery.k8s.io/v1/"
	for _, tc := range []struct {
		method, path, header, want string
	}{
		{http.MethodGet, path + "endpointslices", "", "replica: list /"},
		{http.MethodGet, path + "endpointslices?watch=1", "", "replica: watch /"},
		{http.MethodGet, path + "namespaces/a/endpointslices/b", "", "replica: get a/b"},
		{http.MethodGet, path + "endpointslices", "Bearer own", "cloud"},
		{http.MethodDelete, path + "namespaces/a/endpointslices/b", "", "cloud"},
		{http.MethodGet, "/apis/discovery.k8s.io/v2/endpointslices", "", "cloud"},
		{http.MethodGet, "/api/v1/endpointslices", "", "cloud"},
		{http.MethodGet, path, "", "cloud"},
	} {
		if _, got := ask(t, tc.method, address+tc.path, "Authorization", tc.header); got != tc.want {
			t.Errorf("%s %s (%s): %q, want %q", tc.method, tc.path, tc.header, got, tc.want)
		}
	}
}

// TestTablesOfReplicas: what a person asks of a replicated resource the cloud makes a table of, while it can be asked.
func TestTablesOfReplicas(t *testing.T) {
	var code, state atomic.Uint32
	_, u := cloud(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(code.Load()))
		_, _ = fmt.Fprint(w, "cloud")
	})
	address, _ := hub(t, Config{
		Cloud: u, Replicas: someReplicas{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
		CloudLink: func() link.State { return link.State(state.Load()) },
	})
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for _, tc := range []struct {
		accept string
		state  link.State
		code   uint32
		want   string
	}{
		{asTable, link.Up, http.StatusOK, "cloud"},
		{asTable, link.Unknown, http.StatusOK, "cloud"},
		{asTable, link.Failing, http.StatusServiceUnavailable, "replica: list /"},
		{asTable, link.Down, http.StatusOK, "replica: list /"},
		{"application/json", link.Up, http.StatusOK, "replica: list /"},
	} {
		state.Store(uint32(tc.state))
		code.Store(tc.code)
		const path = "/apis/discovery.k8s.io/v1/endpointslices"
		if _, got := ask(t, http.MethodGet, address+path, "Accept", tc.accept); got != tc.want {
			t.Errorf("as %s, the cloud %v and %d: %q, want %q", tc.accept, tc.state, tc.code, got, tc.want)
		}
	}
}

// keeper answers everything that it is given.
type keeper struct{ seen http.Header }

func (*keeper) Match(r *http.Request) bool {
	kept := r.Header.Get("Edge-Cache") != ""
	r.Header.Del("Edge-Cache")
	return kept
}

func (k *keeper) Answer(w http.ResponseWriter, r *http.Request, client string) bool {
	k.seen = r.Header
	if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.Path != r.URL.Path || client != "" {
		http.Error(w, "no RequestInfo", http.StatusInternalServerError)
		return true
	}
	if r.URL.Query().Has("pass") {
		return false
	}
	_, _ = io.WriteString(w, "kept")
	return true
}

func (*keeper) Recall(http.ResponseWriter, *http.Request, string) bool { return false }

func (k *keeper) Remember(w http.ResponseWriter, r *http.Request, client string, pass http.Handler) {
	if !k.Answer(w, r, client) {
		pass.ServeHTTP(w, r)
	}
}

func (*keeper) Written(w http.ResponseWriter, r *http.Request, _ string, pass http.Handler) {
	pass.ServeHTTP(w, r)
}

func TestKept(t *testing.T) {
	_, u := cloud(t, seen)
	k := &keeper{}
	address, _ := hub(t, Config{Cloud: u, Keeper: k})
	const secret, token = "/api/v1/namespaces/a/secrets/s", "/api/v1/namespaces/a/serviceaccounts/sa/token"
	own, asks := []string{"Authorization", "Bearer abc"}, []string{"Edge-Cache", "true"}
	for _, tc := range []struct {
		name, method, uri string
		header            []string
		kept              bool
		certificate       string
	}{
		{"what is to be kept", "GET", secret, asks, true, ""},
		{"a list", "GET", "/api/v1/secrets", asks, true, ""},
		{"a token", "POST", token, asks, true, ""},
		{"discovery", "GET", "/apis", asks, true, ""},
		{"blank credentials", "GET", secret, append([]string{"Authorization", " "}, asks...), true, ""},
		{"not to be kept", "GET", secret, nil, false, "1"},
		{"a caller's own credentials", "GET", secret, append(own, asks...), false, "0"},
		{"a token for a caller's own credentials", "POST", token, append(own, asks...), false, "0"},
		{"credentials in a WebSocket protocol", "GET", secret,
			append([]string{"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.YWJj"}, asks...), false, "0"},
		{"a write", "PUT", secret, asks, false, "1"},
		{"passed on", "GET", secret + "?pass", asks, false, "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k.seen = nil
			res, body := ask(t, tc.method, address+tc.uri, tc.header...)
			if (body == "kept") != tc.kept || res.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", res.StatusCode, body)
			}
			if k.seen != nil && len(k.seen["Authorization"]) > 0 {
				t.Error("blank credentials are left")
			}
			if tc.kept {
				return
			}
			var got http.Header
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if got.Get("Certificate") != tc.certificate || got.Get("Edge-Cache") != "" {
				t.Errorf("the cloud saw %v", got)
			}
		})
	}
	res, body := ask(t, "GET", address+secret, append([]string{"Impersonate-User", "bob"}, asks...)...)
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("as somebody else: %d %s", res.StatusCode, body)
	}
}

// TestWatchStreams: each event arrives before the next is sent.
func TestWatchStreams(t *testing.T) {
	next := make(chan struct{})
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // headers alone
		for i := range 5 {
			<-next
			fmt.Fprintf(w, "event %d\n", i)
			w.(http.Flusher).Flush()
		}
	})
	address, _ := hub(t, Config{Cloud: u})
	var unencrypted http.Protocols
	unencrypted.SetUnencryptedHTTP2(true)
	h2c := &http.Transport{Protocols: &unencrypted}
	defer h2c.CloseIdleConnections()
	for name, client := range map[string]http.RoundTripper{"HTTP/1.1": http.DefaultTransport, "HTTP/2.0": h2c} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/v1/pods?watch=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if res.Proto != name {
				t.Errorf("answered with %s", res.Proto)
			}
			lines := bufio.NewScanner(res.Body)
			for i := range 5 {
				next <- struct{}{}
				if !lines.Scan() || lines.Text() != fmt.Sprintf("event %d", i) {
					t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
				}
			}
			if lines.Scan() || lines.Err() != nil {
				t.Errorf("after the last event: %q, %v", lines.Text(), lines.Err())
			}
		})
	}
}

// TestWatchBreaksOff: a watch whose upstream is gone ends with an error, and then the hub says which link is down.
func TestWatchBreaksOff(t *testing.T) {
	s, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "event")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	address, _ := hub(t, Config{Cloud: u})
	res, err := do(t, "GET", address+"/api/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	event := make([]byte, len("event\n"))
	if _, err := io.ReadFull(res.Body, event); err != nil || string(event) != "event\n" {
		t.Fatalf("read %q, %v", event, err)
	}
	_ = s.Listener.Close()
	s.CloseClientConnections()
	if more, err := io.ReadAll(res.Body); len(more) > 0 || err == nil {
		t.Errorf("then read %q, %v; want an error", more, err)
	}
	if _, err := u.Link().Wait(t.Context(), func(s link.State) bool { return s == link.Down }); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "PUT"} {
		res, body := ask(t, method, address+"/api/v1/pods")
		status := statusOf(t, body)
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" ||
			status.Reason != metav1.StatusReasonServiceUnavailable ||
			!strings.Contains(status.Message, "link to the cloud is down") {
			t.Errorf("%s: %s, Retry-After %q, %q", method, res.Status, res.Header.Get("Retry-After"), body)
		}
	}
}

func TestUpgrade(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: %s\r\nX-Stream-Protocol-Version: %s\r\n\r\n",
			r.Header.Get("Upgrade"), r.Header.Get("X-Stream-Protocol-Version"))
		_, _ = io.Copy(conn, rw)
	})
	registry := prometheus.NewRegistry()
	address, _ := hub(t, Config{Cloud: u, Metrics: registry})
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	for _, tc := range []struct{ method, protocol string }{{"POST", "SPDY/3.1"}, {"GET", "websocket"}} {
		t.Run(tc.protocol, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			fmt.Fprintf(conn, "%s /api/v1/namespaces/d/pods/p/exec?command=sh HTTP/1.1\r\n"+
				"Host: hub\r\nConnection: Upgrade\r\n"+
				"Upgrade: %s\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", tc.method, tc.protocol)
			reader := bufio.NewReader(conn)
			res, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != tc.protocol ||
				res.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
				t.Fatalf("%s, %v", res.Status, res.Header)
			}
			var sending sync.WaitGroup
			sending.Go(func() {
				_, _ = conn.Write(payload)
				_ = conn.(*net.TCPConn).CloseWrite()
			})
			echoed, err := io.ReadAll(reader)
			if err != nil || !bytes.Equal(echoed, payload) {
				t.Errorf("echoed %d bytes of %d, %v", len(echoed), len(payload), err)
			}
			sending.Wait()
		})
	}
	want := `
# HELP yurthub_requests_total API requests served, by how they ended; 499: broken off before an answer.
# TYPE yurthub_requests_total counter
yurthub_requests_total{code="101",resource="pods/exec",verb="create"} 1
yurthub_requests_total{code="101",resource="pods/exec",verb="get"} 1
`
	eventually(t, func() error {
		return testutil.GatherAndCompare(registry, strings.NewReader(want), "yurthub_requests_total")
	})
}

func TestLimits(t *testing.T) {
	entered, release := make(chan struct{}, 8), make(chan struct{})
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		entered <- struct{}{}
		<-release
	})
	own := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "renewed") })
	address, _ := hub(t, Config{
		Cloud: u, MaxReadOnly: 1, MaxMutating: 1, MaxLongRunning: 1,
		OwnLease: own, Situation: Situation{Node: "n1"},
	})
	classes := []struct{ class, method, path string }{
		{"read-only", "GET", "/api/v1/pods"},
		{"mutating", "POST", "/api/v1/namespaces/d/pods"},
		{"long-running", "GET", "/api/v1/pods?watch=true"},
	}
	var open []*http.Response
	for _, c := range classes {
		res, err := do(t, c.method, address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, res)
		<-entered
	}
	for _, c := range classes {
		res, body := ask(t, c.method, address+c.path)
		s := statusOf(t, body)
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" ||
			s.Reason != metav1.StatusReasonTooManyRequests || !strings.Contains(s.Message, c.class) {
			t.Errorf("%s: %s %q, want 429", c.class, res.Status, body)
		}
	}
	if res, body := ask(t, "PUT", address+leases+"n1"); body != "renewed" {
		t.Errorf("the heartbeat met others' limits: %s %q", res.Status, body)
	}
	close(release)
	for _, res := range open {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	eventually(t, func() error {
		if res, body := ask(t, "GET", address+"/api/v1/pods"); res.StatusCode != http.StatusOK {
			return fmt.Errorf("after the others ended: %s %q", res.Status, body)
		}
		return nil
	})
}

func TestIsLongRunning(t *testing.T) {
	for target, want := range map[string]bool{
		"/api/v1/pods": false, "/api/v1/pods?watch=1": true, "/api/v1/watch/pods": true,
		"/api/v1/namespaces/d/pods/p/log": false, "/api/v1/namespaces/d/pods/p/log?follow=true": true,
		"/api/v1/namespaces/d/pods/p/log?follow=false": false, "/api/v1/namespaces/d/pods/p/log?follow=x": false,
		"/api/v1/namespaces/d/pods/p/exec": true, "/api/v1/namespaces/d/pods/p/attach": true,
		"/api/v1/namespaces/d/pods/p/portforward": true, "/api/v1/namespaces/d/services/s/proxy/x": true,
		"/api/v1/namespaces/d/pods/p/status": false, "/version": false,
	} {
		f := newFront(Config{Cloud: nowhere{}})
		r := httptest.NewRequest(http.MethodGet, target, nil)
		info, err := f.infos.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := isLongRunning(info, r); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
	}
}

// nowhere is an Upstream without an answer.
type nowhere struct{ err error }

func (n nowhere) AsNode() http.RoundTripper                       { return n }
func (n nowhere) AsCaller() http.RoundTripper                     { return n }
func (nowhere) Serves(context.Context) bool                       { return false }
func (n nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, n.err }

func TestUnanswered(t *testing.T) {
	refused := &upstream.DownError{Name: "cloud", Err: errors.New("no answer")}
	cut := &upstream.DownError{Name: "cloud", Err: errors.New("no answer"), Sent: true}
	for _, tc := range []struct {
		name, method string
		err          error
		code         int
		reason       metav1.StatusReason
		retry        string
	}{
		{"link down, read", "GET", refused, 503, metav1.StatusReasonServiceUnavailable, "1"},
		{"link down, write", "PUT", refused, 503, metav1.StatusReasonServiceUnavailable, "1"},
		{"cut off, read", "GET", cut, 503, metav1.StatusReasonServiceUnavailable, "1"},
		{"cut off, write", "POST", cut, 504, metav1.StatusReasonTimeout, ""},
		{"reset, read", "GET", io.ErrUnexpectedEOF, 502, metav1.StatusReasonServiceUnavailable, "1"},
		{"reset, write", "POST", io.ErrUnexpectedEOF, 502, metav1.StatusReasonServiceUnavailable, ""},
		{"not running", "POST", fmt.Errorf("x: %w", upstream.ErrNotRunning),
			503, metav1.StatusReasonServiceUnavailable, "1"},
		{"too long", "POST", context.DeadlineExceeded, 504, metav1.StatusReasonTimeout, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFront(Config{Cloud: nowhere{tc.err}})
			rec := httptest.NewRecorder()
			f.ServeHTTP(rec, httptest.NewRequest(tc.method, "/api/v1/namespaces/d/pods", nil))
			s := statusOf(t, rec.Body.String())
			retry := rec.Header().Get("Retry-After")
			if rec.Code != tc.code || int(s.Code) != tc.code || s.Reason != tc.reason || retry != tc.retry {
				t.Errorf("%d %s, Retry-After %q; want %d %s, %q",
					rec.Code, s.Reason, retry, tc.code, tc.reason, tc.retry)
			}
		})
	}
}

func TestCancelledClient(t *testing.T) {
	gone, entered := make(chan struct{}), make(chan struct{})
	_, u := cloud(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(gone)
	})
	registry := prometheus.NewRegistry()
	address, _ := hub(t, Config{Cloud: u, Metrics: registry})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/pods", nil)
	ended := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		ended <- err
	}()
	<-entered
	cancel()
	<-gone
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	want := `
# HELP yurthub_requests_total API requests served, by how they ended; 499: broken off before an answer.
# TYPE yurthub_requests_total counter
yurthub_requests_total{code="499",resource="other",verb="list"} 1
`
	eventually(t, func() error {
		return testutil.GatherAndCompare(registry, strings.NewReader(want), "yurthub_requests_total")
	})
}

func TestPanic(t *testing.T) {
	_, u := cloud(t, func(http.ResponseWriter, *http.Request) {})
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			fmt.Fprint(w, "half")
			w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(http.Flusher).Flush()
		}
		panic("broken")
	})
	address, _ := hub(t, Config{Cloud: u, OwnLease: own, Situation: Situation{Node: "n1"}})
	lease := address + leases + "n1"
	res, body := ask(t, "GET", lease)
	s := statusOf(t, body)
	if res.StatusCode != http.StatusInternalServerError || s.Reason != metav1.StatusReasonInternalError ||
		strings.Contains(body, "broken") {
		t.Errorf("%s %q, want a 500 without details", res.Status, body)
	}
	res, err := do(t, "PUT", lease, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("half an answer looks complete: %q", body)
	}
	_ = res.Body.Close()
}

func TestBigBodies(t *testing.T) {
	const size = 16 << 20
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	})
	address, _ := hub(t, Config{Cloud: u})
	sent, got := sha256.New(), sha256.New()
	body := io.TeeReader(io.LimitReader(&pattern{}, size), sent)
	res, err := do(t, "POST", address+"/api/v1/namespaces/d/configmaps", body, "Content-Type", protobuf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	n, err := io.Copy(got, res.Body)
	if err != nil || n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes of %d came back, %v", n, size, err)
	}
	if ct := res.Header.Get("Content-Type"); ct != protobuf {
		t.Errorf("content type %q", ct)
	}
}

type pattern struct{ next byte }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = p.next
		p.next += 7
	}
	return len(b), nil
}

func TestResourceLabelIsBounded(t *testing.T) {
	f := newFront(Config{Cloud: nowhere{}})
	m := f.metrics
	invented := &request.RequestInfo{IsResourceRequest: true, Resource: "invented"}
	if got := m.resourceLabel(invented, 404); got != "other" {
		t.Errorf("a resource that nobody serves is labelled %q", got)
	}
	labels := map[string]bool{}
	for i := range 3 * maxResources {
		labels[m.resourceLabel(&request.RequestInfo{IsResourceRequest: true, Resource: fmt.Sprint("r", i)}, 200)] = true
	}
	if len(labels) != maxResources+1 || !labels["other"] {
		t.Errorf("%d labels, want %d and \"other\"", len(labels), maxResources)
	}
}

// An API server closes a connection when it refuses a token that came over it, because checking tokens is its largest cost.
func TestOneCallersRefusalIsNobodyElses(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer bad" {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%d %x", len(body), sha256.Sum256(body))
	})
	address, _ := hub(t, Config{Cloud: u})
	post := func(token, body string) (*http.Response, string, error) {
		response, err := do(t, http.MethodPost, address+"/api/v1/namespaces/d/configmaps", strings.NewReader(body),
			"Authorization", "Bearer "+token)
		if err != nil {
			return nil, "", err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return response, string(answer), err
	}
	var all sync.WaitGroup
	for i := range 9 {
		all.Go(func() {
			for n := range 100 {
				if i == 0 {
					if response, _, err := post("bad", "x"); err != nil || response.StatusCode != http.StatusUnauthorized {
						t.Errorf("a bad token: %v, %v", response, err)
					}
					continue
				}
				size := 2000 + n
				if i < 3 && n%4 == 0 {
					size = BodyBytes + n<<14
				}
				body := strings.Repeat("x", size)
				want := fmt.Sprintf("%d %x", len(body), sha256.Sum256([]byte(body)))
				response, answer, err := post("good", body)
				if err != nil || response.StatusCode != http.StatusCreated || answer != want {
					t.Errorf("a good token: %v, %v, %s", response, err, answer)
				}
			}
		})
	}
	all.Wait()
}

// A server may answer before it has read a request that is too large, or of a type that it does not know.
func TestAnsweredBeforeRead(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		fmt.Fprint(w, r.ContentLength)
	})
	address, _ := hub(t, Config{Cloud: u})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				// A small body is read in any case; a large one does not fit into the buffers on its way.
				for _, size := range []int{1, BodyBytes, 4 << 20, 1, 1} {
					response, err := do(t, http.MethodPost, address+"/api/v1/namespaces/d/configmaps",
						bytes.NewReader(make([]byte, size)))
					if err != nil {
						t.Errorf("%d bytes: %v", size, err)
						continue
					}
					answer, err := io.ReadAll(response.Body)
					if err != nil || string(answer) != strconv.Itoa(size) {
						t.Errorf("%d bytes: answered %q, %v", size, answer, err)
					}
					if response.Close != (size > BodyBytes) {
						t.Errorf("%d bytes: that the connection ends was said: %t", size, response.Close)
					}
					_ = response.Body.Close()
				}
			}
		})
	}
	all.Wait()
}

// A client without credentials can't fix the node's certificate, so it is told to retry, not that it is unauthorized. A kubelet
// that is told the latter exits if its own certificate has expired.
func TestNodeNotAccepted(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	address, _ := hub(t, Config{Cloud: u})
	for _, c := range []struct {
		method, token string
		want          int
	}{
		{http.MethodPost, "", http.StatusServiceUnavailable},
		{http.MethodGet, "", http.StatusServiceUnavailable},
		{http.MethodPost, "token", http.StatusUnauthorized},
		{http.MethodGet, "token", http.StatusUnauthorized},
	} {
		var header []string
		if c.token != "" {
			header = []string{"Authorization", "Bearer " + c.token}
		}
		response, err := do(t, c.method, address+"/apis/certificates.k8s.io/v1/certificatesigningrequests", nil, header...)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.want {
			t.Errorf("%+v: %s, %v", c, response.Status, err)
		}
		if told := strings.Contains(string(body), "yurthub check"); told != (c.token == "") {
			t.Errorf("%+v: it says %s", c, body)
		}
		if again := response.Header.Get("Retry-After"); (again != "") != (c.token == "") {
			t.Errorf("%+v: Retry-After is %q", c, again)
		}
	}
}
