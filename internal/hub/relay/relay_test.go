package relay

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// authority is a pool's for its hubs.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pool"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// hub returns what a hub of the pool is known by, with a common name.
func (a *authority) hub(t *testing.T, name string) Credentials {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pair := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
	return Credentials{Own: func() *tls.Certificate { return pair }, Now: time.Now}
}

// member is a hub that relays.
type member struct {
	*Server
	link   *live.Value[link.State]
	lends  *live.Value[bool]
	denied atomic.Pointer[[]string] // nil means nobody
	at     string
	close  func()
}

func (m *member) denies() []string {
	if all := m.denied.Load(); all != nil {
		return *all
	}
	return nil
}

// silentCloud does not say which nodes the pool has.
func silentCloud() []edge.NodeName { return nil }

func generous() Limits {
	return Limits{PerPeer: 4, All: 8, BytesPerSecond: 8 << 20, BytesPerDay: 1 << 30}
}

func (a *authority) relays(t *testing.T, name edge.NodeName, limits Limits, targets ...string) *member {
	t.Helper()
	m := &member{link: live.NewValue(link.Up), lends: live.NewValue(true)}
	known := a.hub(t, name.HubUser())
	m.Server = NewServer(ServerConfig{
		Credentials: known, Lends: m.lends, Link: m.link, Targets: targets, Dial: (&net.Dialer{}).DialContext,
		Node: name, Nodes: silentCloud, Denied: m.denies, Limits: func() Limits { return limits },
	})
	s := httptest.NewUnstartedServer(m.Server)
	s.TLS, s.Config.ErrorLog = known.Serving(), nil
	s.TLS.NextProtos = []string{"http/1.1"}
	s.TLS.Certificates = []tls.Certificate{*known.Own()} // else httptest adds one of its own, which comes first
	s.StartTLS()
	m.at, m.close = s.Listener.Addr().String(), s.CloseClientConnections
	t.Cleanup(func() {
		m.link.Set(link.Down) // it ends the tunnels, which the server does not know
		s.CloseClientConnections()
		s.Close()
	})
	return m
}

// coordinator answers who relays. It implements http.RoundTripper.
type coordinator struct {
	members map[edge.NodeName]string // where each relays
	asked   atomic.Int64
	gone    atomic.Pointer[error] // what its answer fails with; nil means that it answers
}

// pool is a coordinator that knows where its members relay; empty means nowhere.
func pool(members map[edge.NodeName]string) *coordinator { return &coordinator{members: members} }

// fails lets all questions fail from now on, until err is nil.
func (c *coordinator) fails(err error) *coordinator {
	if c.gone.Store(&err); err == nil {
		c.gone.Store(nil)
	}
	return c
}

func (c *coordinator) RoundTrip(r *http.Request) (*http.Response, error) {
	c.asked.Add(1)
	if err := c.gone.Load(); err != nil {
		return nil, *err
	}
	if r.Method != http.MethodGet || r.URL.Path != edge.PathState || !r.URL.Query().Has(edge.QueryRelaying) {
		return nil, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	said := edge.Relaying{Neighbours: []edge.Neighbour{}}
	for name, at := range c.members {
		if at != "" {
			said.Neighbours = append(said.Neighbours, edge.Neighbour{Name: name, At: netip.MustParseAddrPort(at)})
		}
	}
	text, err := json.Marshal(said)
	return answer(http.StatusOK, string(text)+"\n"), err
}

func answer(code int, text string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(text)), Header: http.Header{
		"Content-Type": {"application/json"},
	}}
}

// client returns a client of a coordinator that answers like that.
func client(t *testing.T, answers http.RoundTripper) rest.Interface {
	t.Helper()
	c, err := coordinationv1client.NewForConfig(&rest.Config{Host: "http://coordinator", QPS: -1, Transport: answers})
	if err != nil {
		t.Fatal(err)
	}
	return c.RESTClient()
}

func (a *authority) asks(t *testing.T, coordinators ...*coordinator) *Client {
	t.Helper()
	all := map[int]rest.Interface{}
	for slot, c := range coordinators {
		all[slot] = client(t, c)
	}
	return NewClient(ClientConfig{
		Credentials: a.hub(t, edge.NodeName("n1").HubUser()), Node: "n1", Pool: "p1", Disk: &memory{blobs: map[string][]byte{}},
		Coordinators: func() map[int]rest.Interface { return all },
		Dial:         (&net.Dialer{}).DialContext, Wanted: func() bool { return true },
		May: func(netip.AddrPort) bool { return true },
	})
}

// cloud is an API server, which repeats what it is told.
func cloud(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said, err := io.ReadAll(r.Body)
		if err != nil {
			return // the caller sees that the answer is short
		}
		fmt.Fprint(w, string(said)+"cloud")
	}))
	t.Cleanup(s.Close)
	return s
}

// through makes a request with the client's own TLS, end to end.
func through(t *testing.T, c *Client, s *httptest.Server, body string) (string, error) {
	t.Helper()
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.DialContext, transport.Proxy = c.DialContext, nil
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func (m *member) count(why string) int {
	return int(testutil.ToFloat64(m.refused.WithLabelValues(why)))
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for tick := time.NewTicker(2 * time.Millisecond); !done(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func TestThroughANeighbour(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	m := ca.relays(t, "n2", generous(), s.Listener.Addr().String())
	c := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
	if by := c.By(); by != "" {
		t.Errorf("%s relays already", by)
	}
	text, err := through(t, c, s, "hello ")
	if text != "hello cloud" || err != nil || c.By() != "n2" {
		t.Errorf("%q, %v by %q", text, err, c.By())
	}
	if up := testutil.ToFloat64(m.carried.WithLabelValues("up")); up < 500 {
		t.Errorf("%v bytes were counted on their way up", up)
	}
	waitFor(t, "the tunnel ends with its connection", func() bool { return m.Neighbours() == 0 })
}

// whose returns the neighbour to which a tunnel leads.
func whose(t *testing.T, conn net.Conn, at map[edge.NodeName]string) edge.NodeName {
	t.Helper()
	for name, address := range at {
		if address == conn.RemoteAddr().String() {
			return name
		}
	}
	t.Fatalf("a tunnel to %v, which is none of %v", conn.RemoteAddr(), at)
	return ""
}

// TestAnotherTakesOver: a neighbour that is gone, has no line, or spent its day is left at once; its tunnels end.
func TestAnotherTakesOver(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	target := s.Listener.Addr().String()
	members, at := map[edge.NodeName]*member{}, map[edge.NodeName]string{}
	for _, name := range []edge.NodeName{"n2", "n3"} {
		members[name] = ca.relays(t, name, generous(), target)
		at[name] = members[name].at
	}
	c := ca.asks(t, pool(at))
	conn, err := c.DialContext(t.Context(), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	first := whose(t, conn, at)
	members[first].link.Set(link.Relayed) // it has a line no more, but another's
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a tunnel whose line is gone", n)
	}
	text, err := through(t, c, s, "")
	if text != "cloud" || err != nil || c.By() == first {
		t.Errorf("%q, %v by %q", text, err, c.By())
	}
	if members[first].count("no-link") != 1 || members[first].Relays() {
		t.Errorf("%s was not asked, or relays still", first)
	}
	second := c.By()
	members[second].link.Set(link.Failing)
	if _, err := through(t, c, s, ""); !errors.Is(err, ErrNobody) {
		t.Errorf("%v, though nobody has a line", err)
	}
	members[first].link.Set(link.Up)
	waitFor(t, "who has a line again is found", func() bool {
		text, err := through(t, c, s, "")
		return text == "cloud" && err == nil && c.By() == first
	})
}

// mute is a connection whose other end has lost its power, once it is told so.
type mute struct {
	net.Conn
	lost chan struct{}
}

func (m mute) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	select {
	case <-m.lost:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
	default:
		return n, err
	}
}

// TestANeighbourFallsSilent: the kernel says so of a connection; the next one goes to somebody else at once.
func TestANeighbourFallsSilent(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	members := map[edge.NodeName]string{}
	for _, name := range []edge.NodeName{"n2", "n3"} {
		members[name] = ca.relays(t, name, generous(), s.Listener.Addr().String()).at
	}
	c := ca.asks(t, pool(members))
	lost := make(chan struct{})
	c.cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return mute{conn, lost}, err
	}
	conn, err := c.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	first := whose(t, conn, members)
	close(lost)
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil { // as nothing arrives
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Fatalf("reading: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	c.cfg.Dial = (&net.Dialer{}).DialContext
	if text, err := through(t, c, s, "hello "); err != nil || text != "hello cloud" || c.By() == first {
		t.Errorf("%q, %v, by %s after %s", text, err, c.By(), first)
	}
}

// TestANeighbourCarriesNothing: one that opens a tunnel and lets nothing through is left for the next one, and relays for nobody.
func TestANeighbourCarriesNothing(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	target := s.Listener.Addr().String()
	members, at := map[edge.NodeName]*member{}, map[edge.NodeName]string{}
	for _, name := range []edge.NodeName{"n2", "n3"} {
		members[name] = ca.relays(t, name, generous(), target)
		at[name] = members[name].at
	}
	c := ca.asks(t, pool(at))
	all, err := c.relaying(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	first, second := all[0].Name, all[1].Name
	members[first].cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	}
	var later atomic.Int64 // by how much the running clock is ahead
	c.cfg.Clock.Ran = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	conn, err := c.DialContext(t.Context(), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	if members[first].Neighbours() != 1 || c.By() != "" {
		t.Errorf("%q relays before anything has come", c.By())
	}
	if _, err := io.WriteString(conn, "is anybody there?"); err != nil {
		t.Fatal(err)
	}
	later.Store(int64(waited))
	if err := conn.Close(); err != nil { // as upstream does, when it has waited long enough
		t.Fatal(err)
	}
	if text, err := through(t, c, s, ""); text != "cloud" || err != nil || c.By() != second {
		t.Errorf("%q, %v by %q, want %s, which carries bytes", text, err, c.By(), second)
	}
}

// TestATunnelThatNobodyNeeds: its end, before anything has come, says nothing of the neighbour. One that the neighbour ends does.
func TestATunnelThatNobodyNeeds(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	target := s.Listener.Addr().String()
	m := ca.relays(t, "n2", generous(), target)
	c := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
	now := time.Now()
	c.cfg.Clock.Ran = func() time.Time { return now }
	for _, tt := range []struct {
		what string
		end  func(net.Conn)
		want float64
	}{
		{"closed, as when the own line is up again", func(net.Conn) {}, 0},
		{"ended by the neighbour", func(conn net.Conn) {
			m.lends.Set(false)
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the tunnel does not end")
			}
		}, 1},
	} {
		conn, err := c.DialContext(t.Context(), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		tt.end(conn)
		_ = conn.Close()
		if got := testutil.ToFloat64(c.tried.WithLabelValues("failed")); got != tt.want {
			t.Errorf("%s: %v failures are counted, want %v", tt.what, got, tt.want)
		}
	}
}

// TestSwitchedOff: a hub whose settings say so relays no more, and ends what is open.
func TestSwitchedOff(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	m := ca.relays(t, "n2", generous(), s.Listener.Addr().String())
	c := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
	conn, err := c.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	m.lends.Set(false)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a tunnel that is not lent", n)
	}
	if _, err := through(t, c, s, ""); !errors.Is(err, ErrNobody) || m.count("off") == 0 || m.Relays() {
		t.Errorf("%v, %d refused, relays: %v", err, m.count("off"), m.Relays())
	}
	m.lends.Set(true)
	waitFor(t, "what is lent again is found", func() bool {
		text, err := through(t, c, s, "")
		return text == "cloud" && err == nil
	})
}

// TestCoordinatorGone: the neighbours of before count where the coordinator does not say.
func TestCoordinatorGone(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	m := ca.relays(t, "n2", generous(), s.Listener.Addr().String())
	coordinator := pool(map[edge.NodeName]string{"n2": m.at})
	c := ca.asks(t, coordinator)
	coordinator.fails(errors.New("gone"))
	if _, err := through(t, c, s, ""); !errors.Is(err, ErrNobody) {
		t.Errorf("%v, though nobody is known", err)
	}
	coordinator.fails(nil)
	known := func() bool { _, err := through(t, c, s, ""); return err == nil }
	waitFor(t, "the coordinator says who relays", known)
	m.link.Set(link.Down)
	if known() {
		t.Error("a neighbour without a line relays")
	}
	coordinator.fails(errors.New("gone"))
	m.link.Set(link.Up)
	waitFor(t, "who is known relays", known)
}

// TestEachCoordinatorIsAsked: a neighbour may reach one of them alone.
func TestEachCoordinatorIsAsked(t *testing.T) {
	ca := newAuthority(t)
	gone := errors.New("gone")
	many := map[edge.NodeName]string{}
	for i := range enough {
		many[edge.NodeName(fmt.Sprint("m", i))] = "10.0.0.9:1"
	}
	some := map[edge.NodeName]string{"n2": "10.0.0.2:1", "n3": "10.0.0.3:1"}
	for name, tt := range map[string]struct {
		at   []*coordinator
		want []edge.NodeName
		err  error
	}{
		"the first knows nobody":    {[]*coordinator{pool(nil), pool(some)}, []edge.NodeName{"n2", "n3"}, nil},
		"the first does not answer": {[]*coordinator{pool(nil).fails(gone), pool(some)}, []edge.NodeName{"n2", "n3"}, nil},
		"both know one of them": {
			[]*coordinator{pool(map[edge.NodeName]string{"n2": "10.0.0.2:1"}), pool(some)},
			[]edge.NodeName{"n2", "n3"}, nil,
		},
		"the first knows enough":    {[]*coordinator{pool(many), pool(nil).fails(gone)}, slices.Sorted(maps.Keys(many)), nil},
		"nobody is named":           {[]*coordinator{pool(nil), pool(nil)}, nil, nil},
		"nobody is named by all":    {[]*coordinator{pool(nil), pool(some).fails(gone)}, nil, gone},
		"none of them can be asked": {nil, nil, errUnreached},
	} {
		found, err := ca.asks(t, tt.at...).relaying(t.Context())
		var names []edge.NodeName
		for _, n := range found {
			names = append(names, n.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, names, err, tt.want, tt.err)
		}
	}
}

// told is what a coordinator says. It implements http.RoundTripper.
type told struct {
	code int
	text string
	on   bool // the answer does not end, as a stream
}

func (c told) RoundTrip(r *http.Request) (*http.Response, error) {
	said := answer(c.code, c.text)
	if c.on {
		said.Body = io.NopCloser(io.MultiReader(strings.NewReader(c.text), silence{r.Context()}))
	}
	return said, nil
}

// silence is read until its context ends.
type silence struct{ context.Context }

func (s silence) Read([]byte) (int, error) {
	<-s.Done()
	return 0, s.Err()
}

// TestAnsweredOtherwise: a coordinator that does not say who relays, as an older one, has said nothing: those known before count.
func TestAnsweredOtherwise(t *testing.T) {
	for name, tt := range map[string]struct {
		said  told
		after time.Duration
	}{
		"a stream of what it knows": {told{http.StatusOK, `{"instance":"a","whole":true}` + "\n", true}, 0},
		"a stream of nothing":       {told{http.StatusOK, "", true}, askTimeout},
		"null":                      {told{http.StatusOK, `{"relaying":null}`, false}, 0},
		"no JSON":                   {told{http.StatusOK, "ok", false}, 0},
		"too much":                  {told{http.StatusOK, `{"relaying":[` + strings.Repeat(" ", maxAnswer) + "]}", false}, 0},
		"it has just begun":         {told{http.StatusServiceUnavailable, `{"kind":"Status"}`, false}, 0},
		"it does not serve that":    {told{http.StatusNotFound, `{"kind":"Status"}`, false}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newAuthority(t).asks(t)
			at := client(t, tt.said)
			c.cfg.Coordinators = func() map[int]rest.Interface { return map[int]rest.Interface{0: at} }
			known := edge.Neighbour{Name: "n2", At: netip.MustParseAddrPort("10.0.0.2:10269")}
			c.search.answered([]edge.Neighbour{known}, nil)
			c.search.answered(nil, nil)
			began := time.Now()
			err := c.refresh(t.Context(), 0)
			if took := time.Since(began); err == nil || took != tt.after {
				t.Errorf("%s: %v after %v, want an error after %v", name, err, took, tt.after)
			}
			if all := c.search.candidates(time.Now()); len(all) != 1 || all[0] != known {
				t.Errorf("%s: %v are tried, want who was known", name, all)
			}
		})
	}
}

// TestWhoIsRefused: nobody but hubs of the pool gets through the handshake, and they get nowhere else.
func TestWhoIsRefused(t *testing.T) {
	ca, other, s := newAuthority(t), newAuthority(t), cloud(t)
	target := s.Listener.Addr().String()
	m := ca.relays(t, "n2", generous(), target)
	ask := func(config *tls.Config, request string) (string, error) {
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", m.at)
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, request); err != nil {
			return "", err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		return strings.TrimSpace(line), err
	}
	connect := func(to string) string { return "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n" }
	good := ca.hub(t, "openyurt:hub:n1").asking("n2")
	anyone := &tls.Config{InsecureSkipVerify: true}
	const no = "HTTP/1.1 405 Method Not Allowed"
	for name, tc := range map[string]struct {
		config  *tls.Config
		request string
		want    string // empty: it does not get through the handshake
		why     string
	}{
		"no certificate":        {anyone, connect(target), "", ""},
		"another pool's hub":    {showing(other.hub(t, "openyurt:hub:n1")), connect(target), "", ""},
		"no hub":                {showing(ca.hub(t, "system:node:n1")), connect(target), "", ""},
		"without a name":        {showing(ca.hub(t, "openyurt:hub:")), connect(target), "", ""},
		"a hub":                 {good, connect(target), "HTTP/1.1 200 Connection established", ""},
		"to another address":    {good, connect("127.0.0.1:1"), "HTTP/1.1 403 Forbidden", "target"},
		"to the same host":      {good, connect(strings.Split(target, ":")[0] + ":22"), "HTTP/1.1 403 Forbidden", "target"},
		"not for a tunnel":      {good, "GET / HTTP/1.1\r\nHost: " + target + "\r\n\r\n", no, "no-connect"},
		"as another's proxy":    {good, "GET http://" + target + "/ HTTP/1.1\r\nHost: " + target + "\r\n\r\n", no, "no-connect"},
		"the neighbour's other": {ca.hub(t, "openyurt:hub:n1").asking("n3"), connect(target), "", ""},
	} {
		before := m.count(tc.why)
		got, err := ask(tc.config, tc.request)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
		if tc.why != "" && m.count(tc.why) != before+1 {
			t.Errorf("%s: not counted as %s", name, tc.why)
		}
	}
	plain := httptest.NewRecorder()
	m.ServeHTTP(plain, httptest.NewRequestWithContext(t.Context(), http.MethodConnect, "http://"+target, nil))
	if plain.Code != http.StatusForbidden {
		t.Errorf("without TLS: %d", plain.Code)
	}
}

// showing shows a certificate, and takes whatever it is shown.
func showing(c Credentials) *tls.Config {
	config := c.asking("")
	config.VerifyConnection = nil
	return config
}

// TestLimits: tunnels, bytes of a second and bytes of a day are bounded.
func TestLimits(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	target := s.Listener.Addr().String()
	limits := generous()
	limits.PerPeer = 2
	m := ca.relays(t, "n2", limits, target)
	c := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
	for i := range 3 {
		conn, err := c.DialContext(t.Context(), "tcp", target)
		if (err == nil) != (i < limits.PerPeer) {
			t.Errorf("tunnel %d: %v", i, err)
		}
		if conn != nil {
			defer func() { _ = conn.Close() }()
		}
	}
	if m.count("too-many") != 1 || m.Neighbours() != 1 {
		t.Errorf("%d refused, %d neighbours", m.count("too-many"), m.Neighbours())
	}

	slow := limits
	slow.BytesPerSecond = share * 128 << 10
	m = ca.relays(t, "n3", slow, target)
	c = ca.asks(t, pool(map[edge.NodeName]string{"n3": m.at}))
	began := time.Now()
	if _, err := through(t, c, s, strings.Repeat("x", 100<<10)); err != nil { // there and back
		t.Error(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("200 KB took %v at 128 KB/s, which is a neighbour's share", took)
	}

	little := limits
	little.BytesPerDay = share * 64 << 10
	m = ca.relays(t, "n4", little, target)
	c = ca.asks(t, pool(map[edge.NodeName]string{"n4": m.at}))
	if text, err := through(t, c, s, strings.Repeat("x", 1<<20)); err == nil {
		t.Errorf("%d bytes came through, more than one neighbour may use in a day", len(text))
	}
	if !m.Relays() {
		t.Error("it relays for no other neighbour")
	}
	if _, err := through(t, c, s, ""); !errors.Is(err, ErrNobody) || m.count("day") == 0 {
		t.Errorf("%v, %d refused for the day", err, m.count("day"))
	}
}

// TestNoCertificate: a hub that its pool's authority does not know yet asks nobody.
func TestNoCertificate(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	m := ca.relays(t, "n2", generous(), s.Listener.Addr().String())
	c := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
	c.cfg.Credentials.Own = func() *tls.Certificate { return nil }
	if _, err := c.DialContext(t.Context(), "tcp", s.Listener.Addr().String()); !errors.Is(err, ErrNoCertificate) {
		t.Error(err)
	}
}
