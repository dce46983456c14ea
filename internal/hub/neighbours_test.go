package hub

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/relay"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/hub/views"
	"yurtcoordinator/internal/live"
)

// certified has a certificate for Pods, or none.
type certified struct {
	identity.Given
	served *live.Value[*tls.Certificate]
}

func (c certified) Served() *live.Value[*tls.Certificate] { return c.served }

// borrowers is a pool of two hubs with a cloud and a coordinator, which says that n2 relays.
type borrowers struct {
	cloud, coordinator *httptest.Server
	dir                string
	authority          *x509.Certificate
	key                *ecdsa.PrivateKey

	mu sync.Mutex
	at netip.AddrPort // where n2 relays; not valid means nowhere
}

func newBorrowers(t *testing.T) *borrowers {
	t.Helper()
	b := &borrowers{dir: t.TempDir()}
	b.cloud = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "cloud")
	}))
	b.coordinator = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != edge.PathState || !r.URL.Query().Has(edge.QueryRelaying) {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		said := edge.Relaying{Neighbours: []edge.Neighbour{}}
		if b.at.IsValid() {
			said.Neighbours = append(said.Neighbours, edge.Neighbour{Name: "n2", At: b.at})
		}
		_ = json.NewEncoder(w).Encode(said)
	}))
	t.Cleanup(b.cloud.Close)
	t.Cleanup(b.coordinator.Close)
	var err error
	if b.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, b.key.Public(), b.key)
	if err != nil {
		t.Fatal(err)
	}
	if b.authority, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return b
}

// hub makes a hub, which serves Pods at an address by the pool's authority.
func (b *borrowers) hub(t *testing.T, name edge.NodeName, at string) *Hub {
	t.Helper()
	file := func(name string, content []byte) string {
		path := filepath.Join(b.dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := file("pair.pem", certificate(t, time.Now().Add(time.Hour)))
	ca := file("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.cloud.Certificate().Raw}))
	h, err := New(flags(t, "--node-name="+string(name), "--nodepool-name=p1", "--server-addr="+b.cloud.URL, "--ca-file="+ca,
		"--cert-file="+pair, "--key-file="+pair, "--cert-dir="+filepath.Join(b.dir, string(name)), "--disk-cache-path=",
		"--enable-coordinator", "--coordinator-server-addr="+b.coordinator.URL),
		ends.Ends{Chance: ends.Chance{Source: soonest{}}})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name.HubUser()}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, b.authority, b.key.Public(), b.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	h.identity = certified{h.identity.(identity.Given), live.NewValue(&tls.Certificate{
		Certificate: [][]byte{der, b.authority.Raw}, PrivateKey: b.key, Leaf: leaf,
	})}
	h.pods = views.NewEntrance(views.EntranceConfig{Fixed: netip.MustParseAddr(at), Served: h.identity.Served})
	h.lent = relay.NewLending(h.lends())
	h.lent.Change(upstream.ForAll, false)
	if err := h.lend(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (b *borrowers) relays(at string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = netip.MustParseAddrPort(at)
}

// run runs parts of hubs until what it returns is called, which waits for them.
func (b *borrowers) run(t *testing.T, parts ...func(context.Context) error) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	return ctx, sync.OnceFunc(func() {
		cancel()
		for range parts {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// cutOff takes the hub's own line away.
func (h *Hub) cutOff(t *testing.T) {
	t.Helper()
	cut := h.upstream("cloud", h.servers)
	cut.Metrics, cut.Detour = nil, h.lent.Detour()
	cut.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	var err error
	if h.cloud, err = upstream.New(cut); err != nil {
		t.Fatal(err)
	}
}

func reaches(ctx context.Context, t *testing.T, of *live.Value[link.State], want link.State) {
	t.Helper()
	if _, err := of.Wait(ctx, func(s link.State) bool { return s == want }); err != nil {
		t.Fatalf("the link is %v, want %v", of.Get(), want)
	}
}

func until(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	for !done() {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		runtime.Gosched()
	}
}

// soonest is a source of random numbers that are almost zero, so that every random pause is minimal. With exact zeros, the
// generator of bounded numbers would never end.
type soonest struct{}

func (soonest) Uint64() uint64 { return 1<<33 | 1<<20 }

// TestRelayedWithoutACoordinator: the coordinator dies, then a node's line is cut and its hub restarts. The node is relayed
// nevertheless.
func TestRelayedWithoutACoordinator(t *testing.T) {
	b := newBorrowers(t)
	lender, borrower := b.hub(t, "n2", "127.0.0.4"), b.hub(t, "n1", "127.0.0.5")
	ctx, stop := b.run(t, lender.cloud.Run, lender.lent.Run, lender.member.Reach)
	defer stop()
	waiting, enough := context.WithTimeout(ctx, 30*time.Second)
	defer enough()
	until(waiting, t, "the lender relays", func() bool { return lender.lent.RelaysAt() != "" })
	b.relays(lender.lent.RelaysAt())

	_, down := b.run(t, borrower.member.Reach)
	defer down()
	reaches(waiting, t, borrower.member.Link(), link.Up)
	_, silent := b.run(t, borrower.lent.Run)
	defer silent()
	until(waiting, t, "it knows who relays", func() bool { return len(borrower.disk.Blobs("relay/")) == 1 })
	silent()
	down()

	b.coordinator.Close()
	restarted := b.hub(t, "n1", "127.0.0.5")
	key := borrower.disk.Blobs("relay/")[0]
	kept, err := borrower.disk.Blob(key)
	if err = errors.Join(err, restarted.disk.PutBlob(key, kept)); err != nil {
		t.Fatal(err)
	}
	restarted.cutOff(t)
	_, end := b.run(t, restarted.cloud.Run, restarted.member.Reach, restarted.lent.Run)
	defer end()
	reaches(waiting, t, restarted.cloud.Link(), link.Relayed)
}

// TestTheCloudOverANeighboursLine: two hubs as they are wired, of which one has no line.
func TestTheCloudOverANeighboursLine(t *testing.T) {
	b := newBorrowers(t)
	lender, borrower := b.hub(t, "n2", "127.0.0.2"), b.hub(t, "n1", "127.0.0.3")
	borrower.cutOff(t)
	ctx, stop := b.run(t, lender.cloud.Run, lender.lent.Run, lender.member.Reach, borrower.cloud.Run, borrower.member.Reach)
	defer stop()
	waiting, enough := context.WithTimeout(ctx, 30*time.Second)
	defer enough()
	reach := func(of *live.Value[link.State], want link.State) { reaches(waiting, t, of, want) }
	reach(lender.cloud.Link(), link.Up)
	reach(lender.member.Link(), link.Up)
	until(waiting, t, "the lender relays", func() bool { return lender.lent.RelaysAt() != "" })
	at := lender.lent.RelaysAt()
	if at != "127.0.0.2:10269" || borrower.lent.RelaysAt() != "" {
		t.Errorf("they say that they relay at %q and %q", at, borrower.lent.RelaysAt())
	}
	b.relays(at)
	reach(borrower.cloud.Link(), link.Relayed)
	response, err := borrower.cloud.AsNode().RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if string(text) != "cloud" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if s := borrower.Status(); s.Cloud != "relayed" || s.RelayedBy != "n2" || lender.Status().Relays != 1 {
		t.Errorf("the one says %s by %q, the other relays for %d", s.Cloud, s.RelayedBy, lender.Status().Relays)
	}
	server, err := url.Parse(b.cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := borrower.lent.DialContext(ctx, "tcp", server.Host) // as its certificates are renewed
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	lender.lent.Change(upstream.ForNothing, false)
	if at := lender.lent.RelaysAt(); at != "" {
		t.Errorf("the lender says that it relays at %s though it is told not to", at)
	}
	reach(borrower.cloud.Link(), link.Down)
	asksForACoordinator(t, b, at)
}

// asksForACoordinator asks at the port where a hub would relay, with the coordinator's name and without it.
func asksForACoordinator(t *testing.T, b *borrowers, at string) {
	t.Helper()
	for name, passed := range map[string]bool{
		edge.PoolName("p1").CoordinatorServerName(): true, edge.PoolName("p2").CoordinatorServerName(): false, "": false,
	} {
		dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}}
		conn, err := dialer.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err) // in TLS 1.3 a client hears later that it is refused
		}
		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if shown.Equal(b.coordinator.Certificate()) != passed {
			t.Errorf("%q leads to %v", name, shown.Subject)
		}
		_ = conn.Close()
	}
}
