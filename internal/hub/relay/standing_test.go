package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
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
	looks int
}

func (c *said) Nodes() []edge.NodeName {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return slices.Clone(c.nodes)
}

// says sets what it says.
func (c *said) says(nodes ...edge.NodeName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = nodes
}

func (c *said) looked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

// TestWhoIsGone: a node that the cloud no longer counts among the pool's is refused within a minute. The cloud's silence, and
// what can't be true, change nothing. While nobody borrows, nobody looks.
func TestWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &said{nodes: []edge.NodeName{"n1", "n2", "n3"}}
		s := NewServer(ServerConfig{
			Link: live.NewValue(link.Up), Node: "n2", Nodes: c.Nodes, Denied: func() []string { return nil }, Limits: Standard,
		})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- s.Run(ctx) }()
		after := func(d time.Duration, n edge.NodeName, want error, looks int) {
			t.Helper()
			before := c.looked()
			time.Sleep(d)
			synctest.Wait()
			if got := s.refuses(n, nil, s.word.Get()); !errors.Is(got, want) {
				t.Errorf("after %v: %v, want %v", d, got, want)
			}
			if looked := c.looked() - before; looked != looks {
				t.Errorf("%d looks in %v, want %d", looked, d, looks)
			}
		}
		after(time.Hour, "stranger", nil, 0) // nobody borrows, and nobody has looked
		s.use.acquire("n1", Standard(), time.Now())
		after(lookEvery, "n1", nil, 1)
		after(0, "stranger", errNoMember, 0)

		c.says("n2", "n3")
		after(lookEvery, "n1", errNoMember, 1)
		c.says()
		after(10*time.Minute, "n1", errNoMember, 10)
		after(0, "n3", nil, 0)
		c.says("n1")
		after(10*time.Minute, "n3", nil, 10)
		c.says("n2", "n3", "n4")
		after(lookEvery, "n4", nil, 1)
		s.use.leave("n1")
		after(time.Hour, "n4", nil, 0)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWhoJoins is let in as soon as the cloud says so, and before the cloud has said anything.
func TestWhoJoins(t *testing.T) {
	ca, s := newAuthority(t), cloud(t)
	m := ca.relays(t, "n2", generous(), s.Listener.Addr().String())
	for i, tt := range []struct {
		nodes []edge.NodeName
		want  error
	}{{nil, nil}, {[]edge.NodeName{"n2", "n3"}, ErrNobody}, {[]edge.NodeName{"n1", "n2", "n3"}, nil}} {
		m.cfg.Nodes = func() []edge.NodeName { return tt.nodes }
		c := ca.asks(t, pool(map[edge.NodeName]string{"n2": m.at}))
		if _, err := through(t, c, s, ""); !errors.Is(err, tt.want) {
			t.Errorf("%d: with the nodes %v: %v, want %v", i, tt.nodes, err, tt.want)
		}
	}
	if m.count("denied") != 1 {
		t.Errorf("%d refused", m.count("denied"))
	}
}
