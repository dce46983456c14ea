package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/link"
)

var oldAddress, newAddress = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")

func TestAbsences(t *testing.T) {
	a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type answer struct {
		after       int // seconds
		named, used []netip.Addr
		left        []netip.Addr
	}
	list := func(all ...netip.Addr) []netip.Addr { return all }
	for name, answers := range map[string][]answer{
		"an address leaves": {
			{0, list(a), list(a), nil}, {30, list(b), list(a), nil}, {120, list(b), list(a), nil}, {150, list(b), list(a,
				b), list(a)},
			{180, list(b), list(a, b), list(a)}, {210, list(b), list(b), nil},
		},
		"a name server that names some of many": {
			{0, list(a), list(a, b), nil}, {30, list(b), list(a, b), nil}, {60, list(a), list(a, b), nil}, {170, list(b),
				list(a, b), nil},
			{200, list(a), list(a, b), nil}, {310, list(b), list(a, b), nil},
		},
		"a name server that was gone for an hour": {
			{0, list(a), list(a), nil}, {3600, list(b), list(a), nil}, {3630, list(a, b), list(a), nil},
		},
		"used again after a while": {
			{0, list(b), list(a), nil}, {60, list(b), nil, nil}, {150, list(b), list(a), nil},
		},
		"a family leaves": {{0, list(a), list(c, a), nil}, {120, list(a), list(c, a), list(c)}},
	} {
		t.Run(name, func(t *testing.T) {
			missing := absences{}
			for i, step := range answers {
				left := missing.answer(step.named, step.used, at.Add(time.Duration(step.after)*time.Second), 2*time.Minute)
				if !slices.Equal(left, step.left) {
					t.Errorf("answer %d: %v left, want %v", i, left, step.left)
				}
			}
		})
	}
}

// cloudByName is a cloud with a name, and two servers on one port of which the name may lead to either.
type cloudByName struct {
	*authority
	port     string
	listener net.Listener // of the new address, until somebody serves there

	mu      sync.Mutex
	leadsTo netip.Addr
}

func (c *cloudByName) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Dial(ctx, network, net.JoinHostPort(c.leadsTo.String(), c.port))
}

func (c *cloudByName) addresses(context.Context, string) ([]netip.Addr, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.leadsTo.IsValid() {
		return nil, true, errors.New("no answer")
	}
	return []netip.Addr{c.leadsTo}, true, nil
}

func (c *cloudByName) lead(to netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leadsTo = to
}

// newCloudByName serves at the old address, and holds the port at the new one.
func newCloudByName(t *testing.T) (*cloudByName, Config) {
	t.Helper()
	c := &cloudByName{authority: newAuthority(t), leadsTo: oldAddress}
	var old net.Listener
	for range 20 { // another program may have the port
		var err error
		if old, err = net.Listen("tcp", oldAddress.String()+":0"); err != nil {
			t.Fatal(err)
		}
		_, c.port, _ = net.SplitHostPort(old.Addr().String())
		if c.listener, err = net.Listen("tcp", net.JoinHostPort(newAddress.String(), c.port)); err == nil {
			break
		}
		_ = old.Close()
		t.Log(err)
	}
	c.at(t, old, "old")
	cfg := c.files(t, "system:node:n1", "https://cloud.example:"+c.port)
	cfg.ServerName = oldAddress.String() // which is in both servers' certificates
	cfg.DialContext, cfg.Addresses = c.dial, c.addresses
	cfg.addresses = addressTiming{look: 20 * time.Millisecond, left: 100 * time.Millisecond, drain: 50 * time.Millisecond}
	return c, cfg
}

// at serves at a listener: /watch until the connection ends, anything else with the server's name.
func (c *cloudByName) at(t *testing.T, l net.Listener, name string) {
	c.serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, name)
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}, func(s *httptest.Server) {
		_ = s.Listener.Close()
		s.Listener = l
	})
}

// TestAnAddressLeaves: when a name leads elsewhere, requests and watches are there within bounded time, and the link stays up.
func TestAnAddressLeaves(t *testing.T) {
	c, cfg := newCloudByName(t)
	c.at(t, c.listener, "new")
	u := start(t, cfg)
	await(t, u, link.Up)
	watch := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := u.AsNode().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	open := watch()
	defer open.Body.Close()
	if got, err := get(t, u.AsNode(), "/"); got != "old\n" || err != nil {
		t.Fatalf("answered by %q, %v", got, err)
	}
	c.lead(newAddress)
	seen, err := io.ReadAll(open.Body) // it ends when the old address is given up
	if string(seen) != "old\n" || err == nil || errors.Is(err, ErrDown) {
		t.Errorf("the watch had %q and ended with %v", seen, err)
	}
	if got, err := get(t, u.AsNode(), "/"); got != "new\n" || err != nil {
		t.Errorf("answered by %q, %v; want the server where the name leads", got, err)
	}
	if at := u.servers[0].session.Remotes(); slices.Contains(at, oldAddress) {
		t.Errorf("there are connections to %v", at)
	}
	if ups, downs := u.servers[0].monitor.Transitions(); ups != 1 || downs != 0 {
		t.Errorf("the link came up %d times and went down %d times", ups, downs)
	}
}

// TestANameLeadsNowhere: while the old address serves, nothing changes if the name's new address does not serve, or no name
// server answers.
func TestANameLeadsNowhere(t *testing.T) {
	c, cfg := newCloudByName(t)
	_ = c.listener.Close()
	cfg.Link.Interval, cfg.Link.MinGap = time.Hour, time.Hour // no probe of the link finds out
	asked := make(chan struct{}, 1)
	addresses := cfg.Addresses
	cfg.Addresses = func(ctx context.Context, server string) ([]netip.Addr, bool, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return addresses(ctx, server)
	}
	u := start(t, cfg)
	await(t, u, link.Up)
	for _, to := range []netip.Addr{newAddress, {}} {
		c.lead(to)
		for begun := time.Now(); time.Since(begun) < 3*(cfg.addresses.left+cfg.addresses.drain); {
			<-asked
			if got, err := get(t, u.AsNode(), "/"); got != "old\n" || err != nil {
				t.Fatalf("answered by %q, %v", got, err)
			}
		}
	}
}

// TestPathOfAServer: what is before the API in a server's address is before every path.
func TestPathOfAServer(t *testing.T) {
	ca := newAuthority(t)
	paths := make(chan string, 16)
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/readyz") {
			return
		}
		paths <- r.URL.EscapedPath() + "?" + r.URL.RawQuery
		w.WriteHeader(http.StatusServiceUnavailable)
	}, nil)
	cfg := ca.files(t, "system:node:n1", s.URL+"/k8s/clusters/c%2F1/")
	cfg.CoreRead = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	u := start(t, cfg)
	await(t, u, link.Up)
	for _, path := range []string{"/api/v1/nodes/n1?watch=true", "/api/v1/nodes/n%2F1?"} {
		if _, err := get(t, u.AsNode(), path); err != nil {
			t.Fatal(err)
		}
		if got := <-paths; got != "/k8s/clusters/c%2F1"+path {
			t.Errorf("asked for %s, want it below /k8s/clusters/c%%2F1: %s", got, path)
		}
	}
	await(t, u, link.Failing) // two core reads were answered with 503: also below a path they are core reads
	if got := <-paths; got != "/k8s/clusters/c%2F1"+cfg.CoreRead+answerWithin {
		t.Errorf("the check asks for %s", got)
	}
}

func TestServerName(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, named("cloud"), nil)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := ca.files(t, "system:node:n1", "https://"+net.JoinHostPort("localhost", at.Port()))
	cfg.ServerName = "127.0.0.1"
	cfg.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return Dial(ctx, network, at.Host) }
	u := start(t, cfg)
	await(t, u, link.Up)
	if got, err := get(t, u.AsNode(), "/"); got != "cloud" || err != nil {
		t.Errorf("answered %q, %v", got, err)
	}
	cfg.ServerName, cfg.Metrics = "", nil
	u = start(t, cfg)
	await(t, u, link.Down)
}

// A server known by name has moved to another address, where it has another authority.
func TestMoved(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	a := first.serve(t, named("a"), nil)
	b := second.serve(t, named("b"), func(s *httptest.Server) { s.TLS.ClientCAs.AddCert(first.cert) }) // it takes probes
	cfg := first.files(t, "n1", "https://127.0.0.1:1")
	cfg.CAFile = ""
	type place struct {
		address string
		ca      []byte
	}
	var at atomic.Pointer[place]
	at.Store(&place{})
	cfg.CA = func() []byte { return at.Load().ca }
	cfg.Address = func() (string, error) {
		if p := at.Load(); p.address != "" {
			return p.address, nil
		}
		return "", errors.New("it is nowhere")
	}
	u := start(t, cfg)
	await(t, u, link.Down)
	if body, err := get(t, u.AsNode(), "/"); !errors.Is(err, ErrDown) {
		t.Errorf("nowhere: %q, %v", body, err)
	}
	for _, p := range []struct {
		place
		want string
	}{
		{place{a.Listener.Addr().String(), first.pem}, "a"}, {place{b.Listener.Addr().String(), second.pem}, "b"},
	} {
		at.Store(&p.place)
		u.Moved()
		waitFor(t, func() bool {
			body, err := get(t, u.AsCaller(), "/")
			return err == nil && body == p.want
		})
		await(t, u, link.Up)
	}
	at.Store(&place{})
	u.Moved()
	await(t, u, link.Down)
	at.Store(&place{b.Listener.Addr().String(), first.pem})
	u.Moved()
	waitFor(t, func() bool {
		body, err := get(t, u.AsCaller(), "/")
		if err == nil {
			t.Fatalf("answered %q by one whom nobody is to trust", body)
		}
		return strings.Contains(err.Error(), "x509")
	})
}
