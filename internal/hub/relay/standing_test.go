package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// TestADeniedNeighbour: a key that was stolen is refused by its certificate's digest, also in a tunnel that is open, while the
// node goes on with another key. By the name of the node or its hub both are refused.
func TestADeniedNeighbour(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	target := s.Listener.Addr().String()
	m := ca.relays(t, "n2", generous(), target)
	stolen := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
	conn, err := stolen.DialContext(t.Context(), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()

	denies := func(who ...string) {
		m.denied.Store(&who)
		m.word.Set(&word{}) // as Run does every minute
	}
	denies("alice", fmt.Sprintf("X509SHA256=%x", sha256.Sum256(stolen.cfg.Credentials.Own().Certificate[0])))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a denied neighbour's tunnel", n)
	}
	waitFor(t, "its tunnel is closed", func() bool { return m.Neighbours() == 0 })
	if _, err := through(t, stolen, s, ""); !errors.Is(err, ErrNobody) || m.count("denied") != 1 {
		t.Errorf("a stolen key: %v, %d refused", err, m.count("denied"))
	}
	anew := func() *Client { return ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at})) }
	if text, err := through(t, anew(), s, ""); text != "cloud" || err != nil {
		t.Errorf("the node with another key: %q, %v", text, err)
	}
	for _, name := range []string{"system:node:n1", "openyurt:hub:n1"} {
		denies(name)
		if _, err := through(t, anew(), s, ""); !errors.Is(err, ErrNobody) {
			t.Errorf("with %s denied: %v", name, err)
		}
	}
	denies("system:node:n12")
	if _, err := through(t, anew(), s, ""); err != nil {
		t.Errorf("with another one denied: %v", err)
	}
}

// said is a cloud that says which nodes the pool has.
type said struct {
	mu    sync.Mutex
	nodes []edge.NodeName
	err   error
	asked int
}

func (c *said) Nodes(context.Context) ([]edge.NodeName, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return slices.Clone(c.nodes), c.err
}

// says sets what it says.
func (c *said) says(err error, nodes ...edge.NodeName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes, c.err = nodes, err
}

func (c *said) questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// TestWhoIsGone: a node that the cloud no longer counts among the pool's is refused within ten minutes, and who joins is let in
// soon. The cloud's silence, and what can't be true, change nothing. While nobody borrows, the cloud is asked nothing.
func TestWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &said{nodes: []edge.NodeName{"n1", "n2", "n3"}}
		line := live.NewValue(link.Up)
		s := NewServer(ServerConfig{
			Link: line, Node: "n2", Nodes: c.Nodes, Denied: func() []string { return nil }, Limits: Standard,
		})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- s.Run(ctx) }()
		after := func(d time.Duration, n edge.NodeName, want error, questions int) {
			t.Helper()
			before := c.questions()
			time.Sleep(d)
			synctest.Wait()
			if got := s.refuses(n, nil, s.word.Get()); !errors.Is(got, want) {
				t.Errorf("after %v: %v, want %v", d, got, want)
			}
			if asked := c.questions() - before; asked != questions {
				t.Errorf("%d questions in %v, want %d", asked, d, questions)
			}
		}
		after(time.Hour, "stranger", nil, 0) // nobody borrows, and the cloud has said nothing
		s.use.acquire("n1", Standard(), time.Now())
		s.asks()
		after(time.Second, "n1", nil, 1)
		after(0, "stranger", errNoMember, 0)

		c.says(nil, "n2", "n3")
		after(askEvery+askAgain, "n1", errNoMember, 1)
		c.says(errors.New("silence"))
		after(10*time.Minute, "n1", errNoMember, 4) // each minute, once one is due
		after(0, "n3", nil, 0)
		c.says(nil)
		after(10*time.Minute, "n3", nil, 10) // each minute
		line.Set(link.Down)
		after(10*time.Minute, "n3", nil, 0)

		line.Set(link.Up)
		c.says(nil, "n2", "n3", "n4")
		after(askAgain, "n4", nil, 1)
		c.says(nil, "n2", "n3", "n4", "n5")
		s.unknown.Store(true) // as ServeHTTP does for n5
		after(askAgain, "n5", nil, 1)
		before := c.questions()
		for range 6 * 60 { // a node that is gone asks every 10 s
			s.unknown.Store(true)
			time.Sleep(10 * time.Second)
		}
		if asked := c.questions(); asked > before+11 {
			t.Errorf("%d questions in an hour for a node that is gone", asked-before)
		}
		c.says(nil, "n2", "n3", "n4", "n5", "n6")
		time.Sleep(askEvery + askAgain)
		synctest.Wait()
		after(0, "n6", nil, 0)
		s.use.leave("n1")
		after(time.Hour, "n5", nil, 0)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestTheNodePool is what the cloud is asked for. Whatever it answers else says nothing.
func TestTheNodePool(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"NodePool","spec":{},"status":{"nodes":["n1","n2"]}}`: "[n1 n2]",
		`{"kind":"NodePool","status":{}}`:                              "[]",
		`{"kind":"NodePool","status":{"nodes":"n1"}}`:                  "cannot unmarshal",
		`cloud`: "invalid character",
		`{"status":{"nodes":["` + strings.Repeat("n", maxNodePool) + `"]}}`: "unexpected EOF",
		``: "404",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/apps.openyurt.io/v1beta2/nodepools/p1" || r.Method != http.MethodGet || text == "" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, text)
		}))
		nodes, err := nodesOf("p1", s.URL, http.DefaultTransport)(t.Context())
		if got := fmt.Sprint(nodes, err); !strings.Contains(got, want) || (err == nil) != strings.HasPrefix(want, "[") {
			t.Errorf("%.60s: %.200s, want %q", text, got, want)
		}
		s.Close()
	}
}
