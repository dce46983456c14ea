package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// reachTimeout bounds connecting to a neighbour and the TLS handshake, on the LAN. answerTimeout bounds the wait for the
	// neighbour's answer, which comes once the neighbour has reached the API server.
	reachTimeout  = 2 * time.Second
	answerTimeout = openTimeout
	// waited is the least age of a tunnel at which its end counts as the neighbour's failure, if nothing came over it. A hub that
	// closes a tunnel earlier no longer needs it: it waits longer than that for an answer (link.Timing.DownTimeout).
	waited = time.Second
	// tries bounds the neighbours that are tried for one connection.
	tries = 3
	// maxReply bounds a neighbour's answer, in bytes.
	maxReply = 4 << 10
)

// ErrNobody says that no neighbour relays.
var ErrNobody = errors.New("no node of the pool relays")

// ClientConfig is what a Client needs. All fields but Metrics are required.
type ClientConfig struct {
	Credentials Credentials
	// Node is this hub's own node, and Pool its pool.
	Node edge.NodeName
	Pool edge.PoolName
	// Disk keeps the neighbours that relay.
	Disk Disk
	// Wanted reports whether this hub may ever use a neighbour's line. If not, Run asks no coordinator.
	Wanted func() bool
	// Coordinators returns clients, as this node, of the pool's coordinators that this hub reaches now, by slot.
	Coordinators func() map[int]rest.Interface
	// Dial opens a connection on the LAN. May reports whether a neighbour can relay at an address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	May  func(at netip.AddrPort) bool
	// Metrics registers the metrics; nil means that they are not exported.
	Metrics prometheus.Registerer
	// Clock and Chance are this machine's clocks and random numbers.
	Clock  ends.Clock
	Chance ends.Chance
}

// Client reaches API servers through neighbours. Safe for concurrent use.
type Client struct {
	cfg    ClientConfig
	search search
	recall func()
	tried  *prometheus.CounterVec
	by     atomic.Pointer[edge.NodeName]
}

// NewClient returns a Client. It registers its metrics.
func NewClient(c ClientConfig) *Client {
	client := &Client{cfg: c, search: newSearch(), tried: promauto.With(c.Metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "yurthub_relayed_connections_total",
		Help: "Connections to the cloud that this hub asked a neighbour for, by their result: ok, failed.",
	}, []string{"result"})}
	client.recall = sync.OnceFunc(client.remembers)
	return client
}

// By returns the neighbour of the last new tunnel over which something came; empty means that there was none.
func (c *Client) By() edge.NodeName {
	if by := c.by.Load(); by != nil {
		return *by
	}
	return ""
}

// DialContext opens a connection to an API server, HOST:PORT, through a neighbour. If one neighbour fails, it tries another at
// once. If all fail, it returns the same error for a while without another try.
func (c *Client) DialContext(ctx context.Context, _, server string) (net.Conn, error) {
	if _, err := c.cfg.Credentials.own(); err != nil {
		return nil, err
	}
	c.recall()
	lost, err := c.search.resting(c.cfg.Clock.Running())
	if err != nil {
		return nil, err
	}
	errs := []error{ErrNobody}
	if lost {
		if err := c.refresh(ctx, askedFor); err != nil {
			errs = append(errs, err)
		}
	}
	all := c.search.candidates(c.cfg.Clock.Running())
	for _, n := range all[:min(len(all), tries)] {
		conn, err := c.through(ctx, n, server)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(ctx.Err(), context.Canceled) { // else nobody waits for it any more, which says nothing about the neighbour
			c.fails(n)
		}
		errs = append(errs, fmt.Errorf("%s: %w", n.Name, err))
		if ctx.Err() != nil {
			break
		}
	}
	err = errors.Join(errs...)
	if !errors.Is(ctx.Err(), context.Canceled) {
		c.search.rest(err, c.cfg.Clock.Running(), c.cfg.Chance)
	}
	return nil, err
}

// fails records that nothing came over a neighbour's tunnel; works records that something did.
func (c *Client) fails(n edge.Neighbour) {
	c.search.note(n.Name, false, c.cfg.Clock.Running())
	c.tried.WithLabelValues("failed").Inc()
}

func (c *Client) works(ctx context.Context, n edge.Neighbour) {
	c.search.note(n.Name, true, c.cfg.Clock.Running())
	c.tried.WithLabelValues("ok").Inc()
	if before := c.by.Swap(&n.Name); before == nil || *before != n.Name {
		klog.FromContext(ctx).Info("The cloud is reached through a neighbour", "neighbour", n.Name, "address", n.At)
	}
}

// errElsewhere says that a neighbour names an address where no hub relays.
var errElsewhere = errors.New("no hub relays there")

// through asks one neighbour for a tunnel.
func (c *Client) through(ctx context.Context, n edge.Neighbour, server string) (net.Conn, error) {
	if !c.cfg.May(n.At) {
		return nil, fmt.Errorf("%s: %w", n.At, errElsewhere)
	}
	reaching, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	raw, err := c.cfg.Dial(reaching, "tcp", n.At.String())
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c.cfg.Credentials.asking(n.Name))
	if err := conn.HandshakeContext(reaching); err != nil {
		_ = raw.Close() // the handshake's error says it all
		return nil, err
	}
	answering, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// The neighbour may be silent: an end of its time ends the waiting.
	stop := context.AfterFunc(answering, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	err = connect(conn, server)
	if !stop() && err == nil {
		err = context.Cause(answering)
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	t := &tunnel{
		Conn: conn, raw: raw, works: func() { c.works(ctx, n) },
		lost: func() { c.search.note(n.Name, false, c.cfg.Clock.Running()) },
	}
	opened := c.cfg.Clock.Running()
	t.unused = func() {
		if t.ended.Load() || c.cfg.Clock.Since(opened) >= waited {
			c.fails(n)
		}
	}
	return t, nil
}

// connect asks for a tunnel and reads the answer, but nothing of what follows the answer.
func connect(conn net.Conn, server string) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: server}, Host: server, Header: http.Header{
		"User-Agent": {"yurthub"},
	}}
	if err := request.Write(conn); err != nil {
		return err
	}
	var header strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(header.String(), "\r\n\r\n"); {
		if header.Len() >= maxReply {
			return fmt.Errorf("its answer is longer than %d bytes", maxReply)
		}
		if _, err := conn.Read(one); err != nil {
			return err
		}
		header.WriteByte(one[0])
	}
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(header.String())), request)
	if err != nil {
		return fmt.Errorf("its answer: %w", err)
	}
	_ = answer.Body.Close() // there is none in what was read
	if answer.StatusCode != http.StatusOK {
		why := make([]byte, 256)
		n, _ := io.ReadAtLeast(conn, why, 1) // only to say more
		return fmt.Errorf("it answers %s: %s", answer.Status, strings.TrimSpace(string(why[:n])))
	}
	return nil
}

// tunnel is a connection to an API server inside the connection to a neighbour. The Client judges the neighbour by whether
// anything comes over the tunnel.
type tunnel struct {
	net.Conn
	raw net.Conn
	// first calls works when something has come, or unused when the tunnel is closed before that.
	first         sync.Once
	works, unused func()
	ended         atomic.Bool // a Read failed
	// lost records that the neighbour has fallen silent, so that later connections do not try it first.
	lost func()
}

// Read reads what the API server has sent.
func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.first.Do(t.works)
	}
	if err != nil {
		t.ended.Store(true)
	}
	if errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		t.lost()
	}
	return n, err
}

// SetLinger makes Close reset the connection to the neighbour, so that the kernel drops unsent bytes.
func (t *tunnel) SetLinger(seconds int) error {
	if c, ok := t.raw.(interface{ SetLinger(sec int) error }); ok {
		return c.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// Close closes the connection to the neighbour. It sends no TLS close_notify, which could wait for a dead neighbour.
func (t *tunnel) Close() error {
	t.first.Do(t.unused)
	return t.raw.Close()
}

// RemoteAddr is the address of the neighbour.
func (t *tunnel) RemoteAddr() net.Addr { return t.raw.RemoteAddr() }
