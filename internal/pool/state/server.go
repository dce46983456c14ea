package state

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// gather is how long changes are gathered that come together, as those of one push.
	gather = 50 * time.Millisecond
	// aliveEvery is how often a stream has a line, also without news.
	aliveEvery = 10 * time.Second
	// lineTime is how long a reader may take to accept a line. It is longer than the pause between two lines (aliveEvery),
	// because HTTP/2 ends a stream at its write deadline even if there is nothing to write.
	lineTime = 3 * aliveEvery
	// lifeTime bounds a stream. The caller then begins a new one, for which its right to read is checked again.
	lifeTime = 10 * time.Minute
)

// Server tells the pool's hubs the pool's state. Its methods may be called concurrently.
type Server struct {
	clock    ends.Clock
	instance string
	nodes    nodeidentifier.NodeIdentifier
	closed   chan struct{}
	close    func()

	// leases are the election's and the declaration; heartbeats are those of nodes. follows says that they are known.
	leases, heartbeats *leases
	follows            func() bool

	number *live.Value[uint64] // of the ledger's last change
	mu     sync.Mutex
	ledger *ledger
	// streams is the number of presence streams under way.
	streams int
}

// New returns the Server of a coordinator that begins.
func New(c ends.Clock) *Server {
	p := &Server{
		clock: c, instance: strings.ToLower(rand.Text()), nodes: nodeidentifier.NewDefaultNodeIdentifier(),
		closed: make(chan struct{}), leases: newLeases(), heartbeats: newLeases(), number: live.NewValue[uint64](0),
		follows: func() bool { return true }, ledger: newLedger(),
	}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Metrics returns what there is to count. The caller registers it.
func (p *Server) Metrics() []prometheus.Collector {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return float64(value())
		})
	}
	return []prometheus.Collector{
		gauge("yurt_coordinator_presence_streams",
			"Hubs that follow what the pool says of its Pods and nodes: those that are cut off.",
			func() int { return p.streams }),
		gauge("yurt_coordinator_silent_nodes", "Nodes that have renewed their Leases here, and then not for the grace period.",
			func() (n int) {
				for _, each := range p.ledger.nodes {
					if each.silent {
						n++
					}
				}
				return n
			}),
	}
}

// Run counts the seconds in which nodes do not renew, until ctx ends. It forgets who is not a member any more.
func (p *Server) Run(ctx context.Context, member func(edge.NodeName) bool) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := p.clock.Running()
	for {
		select {
		case <-ticker.C: // one that was missed is not made up for, and may come with the next one
			now := p.clock.Running()
			if now.Sub(last) < time.Second/2 {
				continue
			}
			last = now
			p.change(func(l *ledger) bool {
				l.forget(member)
				return l.tick()
			})
		case <-ctx.Done():
			return nil
		}
	}
}

// Shown notes a Pod as it is here now.
func (p *Server) Shown(pod edge.PodPresence) {
	p.change(func(l *ledger) bool { return l.shown(pod) })
}

// Hidden notes that a Pod is not here any more.
func (p *Server) Hidden(pod stream.Key) {
	p.change(func(l *ledger) bool { return l.hidden(pod) })
}

// Renewed notes that a node has renewed its Lease, which has a duration.
func (p *Server) Renewed(node edge.NodeName, lease time.Duration) {
	p.change(func(l *ledger) bool { return l.renewed(node, lease) })
}

// Relays notes where a node that renews relays, by its Lease; not valid means nowhere.
func (p *Server) Relays(node edge.NodeName, at netip.AddrPort) {
	p.change(func(l *ledger) bool {
		l.relays(node, at)
		return false
	})
}

// Nodes returns the nodes that have renewed their Leases since this coordinator began, in no order.
func (p *Server) Nodes() []edge.Heard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.heard()
}

func (p *Server) change(change func(*ledger) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if change(p.ledger) {
		p.number.Set(p.ledger.number)
	}
}

// Close ends all streams.
func (p *Server) Close() error {
	p.close()
	return nil
}

// MayLast reports whether a request may exceed kube-apiserver's time limit.
func MayLast(r *http.Request) bool {
	return r.URL.Path == edge.PathState && r.Method == http.MethodGet && !r.URL.Query().Has(edge.QueryRelaying)
}

// ServeHTTP implements http.Handler. kube-apiserver has already authenticated the caller and asked RBAC.
func (p *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &exchange.Reply{ResponseWriter: w}
	caller, err := p.mayRead(r)
	switch {
	case err != nil:
	case r.URL.Query().Has(edge.QueryRelaying):
		err = p.tellRelaying(a, caller)
	case !p.follows():
		err = exchange.Refused(http.StatusServiceUnavailable, "this coordinator begins, and does not know the pool's Leases yet")
	default:
		p.stream(a, r, caller)
	}
	if err != nil {
		a.Refuse(r.Context(), err)
	}
}

// mayRead returns the node that asks, or why it may not.
func (p *Server) mayRead(r *http.Request) (edge.NodeName, error) {
	if r.URL.Path != edge.PathState || r.Method != http.MethodGet {
		return "", exchange.Refused(http.StatusMethodNotAllowed, "GET %s", edge.PathState)
	}
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return "", exchange.Refused(http.StatusForbidden, "only the pool's nodes hear of its state")
	}
	name, isNode := p.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return "", exchange.Refused(http.StatusForbidden,
			"only the pool's nodes hear of its state, and %q is none", caller.GetName())
	}
	return edge.NodeName(name), nil
}

// tellRelaying writes the one line that answers a node who relays.
func (p *Server) tellRelaying(a *exchange.Reply, caller edge.NodeName) error {
	p.mu.Lock()
	all, sure := p.ledger.relaying(caller)
	p.mu.Unlock()
	if !sure {
		return exchange.Refused(http.StatusServiceUnavailable, "this coordinator began lately, and has not heard who relays yet")
	}
	edge.RankNeighbours(caller, all)
	said := edge.Relaying{Neighbours: []edge.Neighbour{}} // nobody is an empty list
	said.Neighbours = append(said.Neighbours, all[:min(len(all), edge.MostRelaying)]...)
	_ = a.Tell(http.StatusOK, said) // on failure the caller is gone
	return nil
}

// told is what a stream has told.
type told struct {
	caller edge.NodeName
	// leases, heartbeats and number are the numbers of the last changes that the stream has told: of the pool's Leases, of
	// heartbeats, and of the ledger. 0 means none. heartbeats stays 0 while the caller does not lead.
	leases, heartbeats, number uint64
	// nodes and pods say what was asked for besides.
	nodes, pods bool
}

// begin returns what a stream has told at its beginning.
func (p *Server) begin(r *http.Request, caller edge.NodeName) *told {
	query := r.URL.Query()
	t := &told{caller: caller, pods: query.Get(edge.QueryPresence) == edge.NodesAndPods}
	t.nodes = t.pods || query.Get(edge.QueryPresence) == edge.NodesOnly
	if after, here := strings.CutPrefix(query.Get(edge.QueryAfter), p.instance+"/"); here {
		if number, err := strconv.ParseUint(after, 10, 64); err == nil && number <= p.heartbeats.number.Get() {
			t.heartbeats = number
		}
	}
	return t
}

// next returns the next line, and whether there is something new in it.
func (p *Server) next(t *told) (said edge.State, news bool) {
	if t.nodes {
		p.mu.Lock()
		said, t.number = p.ledger.since(t.number)
		p.mu.Unlock()
		if !t.pods {
			said.Pods, said.Gone = nil, nil
		}
	}
	said.Instance = p.instance
	if now, number := p.leases.since(t.leases); number != t.leases {
		t.leases, said.Leases = number, now
	}
	if p.leases.holder(edge.LeaseElection) == t.caller {
		said.Heartbeats, t.heartbeats = p.heartbeats.since(t.heartbeats)
		said.Heartbeats.Position = p.instance + "/" + strconv.FormatUint(t.heartbeats, 10)
		news = said.Heartbeats.Whole || len(said.Heartbeats.Leases) > 0
	} else {
		t.heartbeats = 0
	}
	return said, news || said.Leases != nil || said.Whole || len(said.Pods)+len(said.Gone)+len(said.Nodes) > 0
}

// stream writes lines until the caller goes away.
func (p *Server) stream(a *exchange.Reply, r *http.Request, caller edge.NodeName) {
	t, all := p.begin(r, caller), true // the first line comes whatever is in it
	if t.nodes {
		p.count(1)
		defer p.count(-1)
	}
	control := http.NewResponseController(a.ResponseWriter)
	life, alive := time.NewTimer(lifeTime), time.NewTicker(aliveEvery)
	defer life.Stop()
	defer alive.Stop()
	for {
		var beaten, changed <-chan struct{}
		_, moved := p.leases.number.Watch()
		leads := t.heartbeats != 0
		if leads {
			_, beaten = p.heartbeats.number.Watch()
		}
		if t.nodes {
			_, changed = p.number.Watch()
		}
		if said, news := p.next(t); news || all {
			// Without a deadline a line may last. It is real time, as the connection's.
			_ = control.SetWriteDeadline(time.Now().Add(lineTime)) //nolint:forbidigo // it is real time
			if a.Tell(http.StatusOK, said) != nil || control.Flush() != nil {
				return
			}
		}
		if all = false; leads != (t.heartbeats != 0) {
			continue // heartbeats are followed from now on, or no more
		}
		select {
		case <-moved:
		case <-beaten:
		case <-changed:
			if run.Pause(r.Context(), gather) != nil {
				return
			}
		case <-alive.C:
			all = true
		case <-life.C:
			return
		case <-p.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (p *Server) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams += n
}
