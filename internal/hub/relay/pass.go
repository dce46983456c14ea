package relay

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

const (
	// passedOfOne and passedOfAll bound the connections that a hub passes on, from one address and from all. A coordinator
	// accepts 64 handshakes at a time from one address, and all passed connections come from the hub's address. So 16 are left
	// for the hub itself.
	passedOfOne, passedOfAll = 16, 48
	// newOfOne and newOfAll are how many new connections a second are allowed on average, from one address and from all. The
	// burst is as large as the number that may be open. A kubectl makes two.
	newOfOne, newOfAll = 4, 32
	// bytesOfOne and bytesOfAll bound the bytes that passed connections carry in a second, both ways, for one address and for
	// all. That is enough for a file of some megabytes, and does not fill the LAN.
	bytesOfOne, bytesOfAll = 8 << 20, 16 << 20
	// sources bounds how many addresses the Passer remembers. It forgets the least recently active one.
	sources = 256
	// passTimeout bounds the opening of a connection to a coordinator, on the LAN.
	passTimeout = 2 * time.Second
)

// PasserConfig is what a Passer needs. All fields but Metrics are required.
type PasserConfig struct {
	// Named reports whether a server name is that of one of the pool's coordinators.
	Named func(serverName string) bool
	// Dial opens a connection to a coordinator that has the given server name and is known to live.
	Dial func(ctx context.Context, serverName string) (net.Conn, error)
	// Metrics registers the metrics; nil means that they are not exported.
	Metrics prometheus.Registerer
	// Clock is this machine's clock.
	Clock ends.Clock
}

// Passer passes connections on to the pool's coordinators, unread, if the server name in the client's TLS handshake is a
// coordinator's. So a client needs only the address of any node. The client proves its identity to the coordinator.
type Passer struct {
	cfg   PasserConfig
	all   allotment
	mu    sync.Mutex
	of    *lru.Cache // of *allotment, by netip.Addr
	tried *prometheus.CounterVec
	open  prometheus.Gauge
	bytes *prometheus.CounterVec
}

// allotment limits the new connections and the bytes of one address, or of all together.
type allotment struct{ opens, bytes *rate.Limiter }

func newAllotment(opens, most, bytes int) allotment {
	return allotment{opens: rate.NewLimiter(rate.Limit(opens), most), bytes: rate.NewLimiter(rate.Limit(bytes), bytes/4)}
}

// NewPasser returns a Passer. It registers its metrics.
func NewPasser(c PasserConfig) *Passer {
	m := promauto.With(c.Metrics)
	p := &Passer{
		cfg: c, all: newAllotment(newOfAll, passedOfAll, bytesOfAll), of: lru.New(sources),
		tried: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_passed_connections_total",
			Help: "Connections that asked this hub for a coordinator of its pool, by what became of them: ok, passed on; " +
				"too-fast, after too many others; unreached, no coordinator is known to live.",
		}, []string{"result"}),
		open: m.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_passed_connections", Help: "Connections that are being passed on to a coordinator of the pool.",
		}),
		bytes: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_passed_bytes_total", Help: "Bytes that were passed on to a coordinator (up), and back (down).",
		}, []string{"direction"}),
	}
	for _, result := range []string{"ok", "too-fast", "unreached"} {
		p.tried.WithLabelValues(result)
	}
	return p
}

// Aside returns the conns.Aside by which a Gate hands connections to the Passer.
func (p *Passer) Aside() *conns.Aside {
	return &conns.Aside{Takes: p.cfg.Named, Serve: p.serve, PerSource: passedOfOne, All: passedOfAll}
}

// serve passes a connection on until it ends.
func (p *Passer) serve(ctx context.Context, name string, asked net.Conn) {
	own := p.allotted(asked)
	log := klog.FromContext(ctx).WithValues("from", asked.RemoteAddr(), "name", name)
	if now := p.cfg.Clock.Running(); !own.opens.AllowN(now, 1) || !p.all.opens.AllowN(now, 1) {
		p.tried.WithLabelValues("too-fast").Inc()
		return
	}
	dialing, cancel := context.WithTimeout(ctx, passTimeout)
	other, err := p.cfg.Dial(dialing, name)
	cancel()
	if err != nil {
		p.tried.WithLabelValues("unreached").Inc()
		log.V(1).Info("Can't pass a connection on to a coordinator", "err", err)
		return
	}
	p.tried.WithLabelValues("ok").Inc()
	p.open.Inc()
	defer p.open.Dec()
	why := carry(ctx, asked, &bytes.Buffer{}, other, passing{p, own}, p.cfg.Clock)
	_ = other.Close() // its end says nothing more
	if ctx.Err() == nil {
		conns.HearOut(asked) // a coordinator that refuses says why before it closes
	}
	log.V(2).Info("A connection to a coordinator has ended", "why", why)
}

// allotted returns the allotment of a connection's address.
func (p *Passer) allotted(c net.Conn) *allotment {
	var from netip.Addr
	if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		from = conns.Source(at.Addr())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found, _ := p.of.Get(from)
	own, ok := found.(*allotment)
	if !ok {
		fresh := newAllotment(newOfOne, passedOfOne, bytesOfOne)
		own = &fresh
		p.of.Add(from, own)
	}
	return own
}

// passing is the toll of passed connections.
type passing struct {
	*Passer
	own *allotment
}

func (p passing) wait(ctx context.Context, n int) error {
	if err := wait(ctx, p.own.bytes, n, p.cfg.Clock); err != nil {
		return err
	}
	return wait(ctx, p.all.bytes, n, p.cfg.Clock)
}

func (p passing) paid(way direction, n int) error {
	p.bytes.WithLabelValues(string(way)).Add(float64(n))
	return nil
}
