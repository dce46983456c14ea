package conns

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// patient is how long tests wait for what takes a moment, unless the machine is busy.
const patient = 30 * time.Second

// selfMade returns a certificate that nobody has signed.
func selfMade(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// gated is a Gate that greets whom it lets in. It knows a client named "friend".
type gated struct {
	*Gate
	t    *testing.T
	mu   sync.Mutex
	why  map[Reason]int
	from []netip.AddrPort
	in   []net.Conn // were let in, in this order
}

func newGated(t *testing.T, set func(*GateConfig)) *gated {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{t: t, why: map[Reason]int{}}
	c := GateConfig{
		Handshake: patient, Waiting: 100, WaitingPerSource: 100, PerSource: 100,
		TLS: &tls.Config{
			Certificates: []tls.Certificate{selfMade(t, "server")}, ClientAuth: tls.RequireAnyClientCert,
			VerifyConnection: func(s tls.ConnectionState) error {
				if s.PeerCertificates[0].Subject.CommonName != "friend" {
					return &tls.CertificateVerificationError{Err: errors.New("no friend")}
				}
				return nil
			},
		},
		Refused: func(from netip.AddrPort, why Reason, err error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.why[why]++
			g.from = append(g.from, from)
			if err == nil {
				t.Errorf("%s: no error", why)
			}
		},
	}
	if set != nil {
		set(&c)
	}
	g.Gate = NewGate(inner, c)
	g.hear = patient // a machine that is busy may be late with the client's request
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := g.Accept()
			if err != nil {
				return
			}
			if _, ok := c.(*tls.Conn); !ok {
				t.Errorf("%T was accepted", c)
			}
			g.mu.Lock()
			g.in = append(g.in, c)
			g.mu.Unlock()
			_, _ = io.WriteString(c, "h")
			go func() { // until the client leaves
				_, _ = io.Copy(io.Discard, c)
				_, _ = c.Close(), c.Close() // twice gives one place back
			}()
		}
	}()
	t.Cleanup(func() {
		_ = g.Close()
		<-ended
		for _, c := range g.in {
			_ = c.Close()
		}
	})
	return g
}

// greeted returns a client's connection once it is let in.
func (g *gated) greeted(from string, certs ...tls.Certificate) (net.Conn, error) {
	g.t.Helper()
	c := tls.Client(dial(g.t, from, g.Addr().String()), &tls.Config{
		InsecureSkipVerify: true, Certificates: certs,
	})
	_ = c.SetDeadline(time.Now().Add(patient))
	_, err := c.Write([]byte("an early request")) // as with TLS 1.3, before it knows whether it is let in
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err != nil {
		_ = c.Close() // who is refused need not be heard out any longer
	}
	return c, err
}

func (g *gated) count(why Reason) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why[why]
}

// comes waits until so many were refused for a reason.
func (g *gated) comes(why Reason, want int) {
	g.t.Helper()
	for deadline := time.Now().Add(patient); g.count(why) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("%d were refused as %s, want %d", g.count(why), why, want)
		}
	}
}

func TestGate(t *testing.T) {
	g := newGated(t, nil)
	if _, err := g.greeted("127.0.0.1", selfMade(t, "friend")); err != nil {
		t.Errorf("a friend: %v", err)
	}
	// Each says why, though the client's request was under way when it was refused.
	for range 20 {
		if _, err := g.greeted("127.0.0.2"); err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Fatalf("nobody: %v", err)
		}
		if _, err := g.greeted("127.0.0.2", selfMade(t, "foe")); err == nil || !strings.Contains(err.Error(), "bad certificate") {
			t.Fatalf("a foe: %v", err)
		}
	}
	if _, err := io.WriteString(dial(t, "127.0.0.2", g.Addr().String()), "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	g.comes(NoCertificate, 20)
	g.comes(Unknown, 20)
	g.comes(Broken, 1)
	if from := g.from[0].Addr(); from != netip.MustParseAddr("127.0.0.2") || g.from[0].Port() == 0 {
		t.Errorf("refused: %s", from)
	}
	g.let.mu.Lock()
	open := len(g.let.open)
	g.let.mu.Unlock()
	if waits := g.waits(); waits != 0 || open != 1 {
		t.Errorf("%d wait, and of %d addresses some are let in", waits, open)
	}
}

func TestAGateWaitsForNobodyLong(t *testing.T) {
	g := newGated(t, func(c *GateConfig) { c.Handshake = 500 * time.Millisecond })
	if !closed(t, dial(t, "127.0.0.1", g.Addr().String())) {
		t.Error("it is open still")
	}
	g.comes(Slow, 1)
}

// TestWhoOnlyWaitsGivesWay: a client that is not slow is let in, however many of its address and of others only wait.
func TestWhoOnlyWaitsGivesWay(t *testing.T) {
	g := newGated(t, func(c *GateConfig) { c.Handshake, c.Waiting, c.WaitingPerSource = time.Minute, 5, 3 })
	friend := selfMade(t, "friend")
	var idle []net.Conn
	wait := func(from string) {
		t.Helper()
		before := g.waits()
		idle = append(idle, dial(t, from, g.Addr().String()))
		for deadline := time.Now().Add(patient); g.waits() == before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
	for range 3 {
		wait("127.0.0.1")
	}
	if _, err := g.greeted("127.0.0.1", friend); err != nil {
		t.Errorf("a friend of the same address: %v", err)
	}
	g.comes(Slow, 1)
	if !closed(t, idle[0]) {
		t.Error("the oldest still waits")
	}
	for range 3 {
		wait("127.0.0.2")
	}
	if _, err := g.greeted("127.0.0.3", friend); err != nil {
		t.Errorf("a friend of another address: %v", err)
	}
	g.comes(Slow, 2)
	if !closed(t, idle[1]) {
		t.Error("the oldest of all still waits")
	}
	if n := g.waits(); n != 4 {
		t.Errorf("%d wait", n)
	}
}

func (g *gated) waits() int {
	g.Gate.mu.Lock()
	defer g.Gate.mu.Unlock()
	return g.waiting.Len()
}

func TestAGateBoundsWhomItLetIn(t *testing.T) {
	g := newGated(t, func(c *GateConfig) { c.PerSource = 2 })
	friend := selfMade(t, "friend")
	var in []net.Conn
	for range 2 {
		c, err := g.greeted("127.0.0.1", friend)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, c)
	}
	if _, err := g.greeted("127.0.0.1", friend); err == nil {
		t.Error("one more was let in")
	}
	g.comes(TooMany, 1)
	if _, err := g.greeted("127.0.0.2", friend); err != nil {
		t.Errorf("another address: %v", err)
	}
	_ = in[0].Close()
	for deadline := time.Now().Add(patient); ; time.Sleep(time.Millisecond) { // the server has to hear of it
		if _, err := g.greeted("127.0.0.1", friend); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("a place that was given back was not taken: %v", err)
		}
	}
}

// TestAGateBoundsWhomACertificateNames: they share an address, as the nodes behind a router or in a /64 do, or come from several.
func TestAGateBoundsWhomACertificateNames(t *testing.T) {
	g := newGated(t, func(c *GateConfig) {
		c.PerSource, c.Named = 2, true
		c.TLS.VerifyConnection = nil // whoever it is
	})
	for i := range 5 {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			if _, err := g.greeted(from, selfMade(t, fmt.Sprintf("node-%d", i))); err != nil {
				t.Errorf("node-%d: %v", i, err)
			}
		}
	}
	if _, err := g.greeted("127.0.0.3", selfMade(t, "node-1")); err == nil {
		t.Error("a third one of node-1 was let in")
	}
	g.comes(TooMany, 1)
}

// TestANameIsItsOwnersPlaces: whoever has a certificate in somebody's name, and proves nothing, takes none of that one's places.
func TestANameIsItsOwnersPlaces(t *testing.T) {
	g := newGated(t, func(c *GateConfig) { c.PerSource, c.All, c.Named, c.Unproved, c.AllUnproved = 2, 3, true, 2, 100 })
	friend := selfMade(t, "friend")
	enter := func(from string) (net.Conn, *Newcomer) {
		t.Helper()
		client, err := g.greeted(from, friend)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		return client.(*tls.Conn).NetConn(), NewcomerOf(WithNewcomer(t.Context(), g.in[len(g.in)-1]))
	}
	for i := range 6 {
		enter(fmt.Sprintf("127.0.0.%d", 2+i/2))
	}
	var own []net.Conn
	for range 2 {
		c, server := enter("127.0.0.1")
		server.Prove()
		own = append(own, c)
	}
	for _, c := range own {
		if err := isOpen(t, c); err != nil {
			t.Errorf("its owner's was closed: %v", err)
		}
	}
	third, server := enter("127.0.0.1")
	server.Prove()
	g.comes(TooMany, 1)
	if !closed(t, third) {
		t.Error("one more than its owner may have is open")
	}
	_ = own[0].Close()
	for deadline := time.Now().Add(patient); ; time.Sleep(time.Millisecond) { // the server has to hear of it
		if g.let.mu.Lock(); g.let.total == 1 {
			g.let.mu.Unlock()
			break
		}
		g.let.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("a place was not given back")
		}
	}
	gone, server := enter("127.0.0.1")
	_, _ = gone.Close(), server.Close()
	server.Prove() // by a request that was under way
	g.let.mu.Lock()
	defer g.let.mu.Unlock()
	if g.let.total != 1 {
		t.Errorf("%d have a place, one of them after its end", g.let.total)
	}
}

// TestStrangersPushOutNobody: many addresses prove nothing, each with few connections. They give way to one another, and to a
// friend who has yet to prove himself; who has proved himself stays, however many connections he has.
func TestStrangersPushOutNobody(t *testing.T) {
	g := newGated(t, func(c *GateConfig) { c.Unproved, c.AllUnproved, c.All = 2, 6, 12 })
	friend := selfMade(t, "friend")
	enter := func(from string) net.Conn {
		t.Helper()
		client, err := g.greeted(from, friend)
		if err != nil {
			t.Fatal(err)
		}
		return client.(*tls.Conn).NetConn()
	}
	stays := map[string]net.Conn{}
	for i := range 5 { // more than any stranger has
		stays[fmt.Sprint("proved ", i)] = enter("127.0.0.1")
		g.mu.Lock()
		NewcomerOf(WithNewcomer(t.Context(), g.in[len(g.in)-1])).Prove()
		g.mu.Unlock()
	}
	stays["a friend who is slow"] = enter("127.0.0.100")
	const comes = 12
	for i := range comes {
		enter(fmt.Sprintf("127.0.0.%d", 2+i%3))
	}
	g.comes(TooMany, 1+comes-6)
	for who, c := range stays {
		if err := isOpen(t, c); err != nil {
			t.Errorf("%s was closed: %v", who, err)
		}
	}
}

// TestWhoProvesNothingGivesWay to newer connections of the same address. Who has proved itself stays, and so do other addresses.
func TestWhoProvesNothingGivesWay(t *testing.T) {
	for name, aside := range map[string]*Aside{
		"alone":     nil,
		"and aside": {Takes: func(string) bool { return false }, PerSource: 1, All: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGated(t, func(c *GateConfig) { c.Unproved, c.Aside = 2, aside })
			friend := selfMade(t, "friend")
			enter := func(from string) (client net.Conn, server *Newcomer) {
				t.Helper()
				client, err := g.greeted(from, friend)
				if err != nil {
					t.Fatal(err)
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				server = NewcomerOf(WithNewcomer(t.Context(), g.in[len(g.in)-1]))
				if server == nil || server.Proved() {
					t.Fatalf("it comes in as %+v", server)
				}
				return client, server
			}
			proved, server := enter("127.0.0.1")
			server.Prove()
			other, _ := enter("127.0.0.2")
			first, _ := enter("127.0.0.1")
			second, _ := enter("127.0.0.1")
			if g.count(TooMany) != 0 {
				t.Fatalf("%d gave way among two", g.count(TooMany))
			}
			third, _ := enter("127.0.0.1")
			g.comes(TooMany, 1)
			if !closed(t, first.(*tls.Conn).NetConn()) {
				t.Error("the oldest is still open")
			}
			for who, c := range map[string]net.Conn{"proved": proved, "other": other, "second": second, "third": third} {
				if err := isOpen(t, c.(*tls.Conn).NetConn()); err != nil {
					t.Errorf("%s was closed: %v", who, err)
				}
			}
		})
	}
}

func TestAGateThatIsClosed(t *testing.T) {
	g := newGated(t, func(c *GateConfig) { c.Handshake = time.Minute })
	c := dial(t, "127.0.0.1", g.Addr().String())
	for g.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = g.Close()
	if !closed(t, c) {
		t.Error("a handshake goes on")
	}
	if _, err := g.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted: %v", err)
	}
	if len(g.why) != 0 {
		t.Errorf("refused: %v", g.why)
	}
}
