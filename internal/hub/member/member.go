// Package member is a hub's part in its pool. A Membership reaches the pool's coordinator and sends kubelet's heartbeats there,
// too. It stands for election, does a leader's duties while it leads, and pushes the node's own objects.
//
//	        upstream "cloud" ◀──── heartbeat.Proxy ────▶ upstream "coordinator" ◀─ coordinators: where that is
//	                 ▲                                        ▲    │
//	as the pool's    │                    elects, by its Leases    │ what it has: Mirror
//	forwarding user  │                                        │    ▼
//	                 └── while leading: duties ◀── lead.Elector    whoever follows it
//	                           │
//	                           ├─ forward heartbeats, report, compare lines
//	                           └─ push what the pool shares ────▶ the coordinator's mirror
//	while nobody leads: share.Filler ─────────────────────────────▶
//	always: share.Node, share.Taker: this node's own ─────────────▶ the coordinator
//
// coordinator.go finds the coordinator, heartbeats.go handles kubelet's heartbeats, duties.go a leader's duties, and own.go the
// node's own objects.
//
// A Membership is made in two steps, New and Follow, because of a cycle. What a hub follows depends on what it can read at the
// coordinator, and what it pushes there depends on what it follows. Invariants: the parts of the first step run in Reach. They
// outlive the parts of the second step, which run in TakePart. Nothing reads the followed selections before TakePart.
//
// Alone makes the Membership of a hub without a coordinator. Its link to the coordinator is never up, its standing never changes,
// and kubelet's heartbeats go only to the cloud.
package member

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/coordinators"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/share"
	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/hub/views"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// Config is what a Membership needs. Fields without a default are required.
type Config struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Cloud reaches the cloud.
	Cloud *upstream.Upstream
	// At are the coordinators' URLs, in the order of their slots. If At is empty, the cloud names the coordinators and their
	// authority. Otherwise the authority in Via verifies them.
	At []*url.URL
	// Via is how the node reaches any API server: the files, the dialer, and the metrics. Name and servers are filled in.
	Via upstream.Config
	// Dir keeps where the coordinator was found.
	Dir string
	// KubeletConfig and KubeletServing are where kubelet's serving certificate is found: see identity.KubeletConfig.
	KubeletConfig, KubeletServing string
	// Version is the hub's own, for the pool and the cloud to see.
	Version string
	// Relayed returns which neighbour relays for this node, or did last, and for what; an empty value means that none did.
	// RelaysAt returns the address at which this hub relays for other nodes; empty means nowhere.
	Relayed  func() edge.Relayed
	RelaysAt func() string
	// Report returns what the hub says of itself to its pool; nil means nothing.
	Report func() edge.HubReport
	// LinkProfile returns what kind of link leads to the cloud at present.
	LinkProfile func() v1alpha1.LinkProfile
	// OwnObjects brings this node's objects to the coordinator, OwnSecrets the Secrets that its Pods use, too.
	OwnObjects, OwnSecrets bool
	// History finds out which history the cloud is in.
	History *cache.HistoryKeeper
	// Disk keeps the Events that the cloud has not been told of.
	Disk share.TakerDisk
	// Overlay shows endpoints as the pool knows them.
	Overlay *views.EndpointsView
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Membership is a hub's part in its pool. Make one with New or Alone, and give it with Follow what the hub follows.
type Membership struct {
	cfg          Config
	coordinators []*coordinator                    // at least one, in the order of their slots; nil means that the hub is alone
	denied       func() string                     // see coordinators.Target
	clients      func() (ids []string, known bool) // see coordinators.Finder
	home         *coordinators.Home

	link       *live.Value[link.State]
	standing   *live.Value[lead.Standing]
	mirror     *cache.Pool
	heartbeats http.Handler
	kubelet    *identity.KubeletFinder

	followed *cache.Set
	taker    *share.Taker
	changed  func()

	reach, part run.Group
}

// Alone returns the Membership of a hub that has no coordinator. Of the Config it needs Node, Cloud and Metrics.
func Alone(cfg Config) (*Membership, error) {
	m := none(cfg)
	if err := m.beatAlone(); err != nil {
		return nil, err
	}
	return m, nil
}

// none returns a member of nothing.
func none(cfg Config) *Membership {
	return &Membership{
		cfg: cfg, link: live.NewValue(link.Down), standing: live.NewValue(lead.Standing{}), changed: func() {},
		denied: func() string { return "" }, clients: func() ([]string, bool) { return nil, false },
	}
}

// New returns the Membership of a hub that has a coordinator, wherever that is.
func New(cfg Config) (*Membership, error) {
	m := none(cfg)
	if err := m.reachCoordinators(); err != nil {
		return nil, err
	}
	m.settle()
	if err := m.beat(); err != nil {
		return nil, err
	}
	coverage := cache.NewCoverage(m.cfg.Ends)
	m.reach.Add("coverage", m.home.Each(func(ctx context.Context, slot int) error {
		return coverage.Run(ctx, m.coordinators[slot].state.Declared())
	}))
	if err := m.elect(); err != nil {
		return nil, err
	}
	m.standing = m.home.Standing()
	m.mirror = &cache.Pool{
		As: m.home.Transport(), Base: m.coordinators[0].address, Link: m.link, Standing: m.home.Anywhere(),
		Covered: coverage.Of, Filling: coverage.Filling, History: coverage.History(),
	}
	return m, nil
}

// elect makes this hub's part in the elections.
func (m *Membership) elect() error {
	cloud, err := m.forwarding()
	if err != nil {
		return err
	}
	forwarder, reporter := m.forwarder(cloud), m.reporter(cloud)
	for i, c := range m.coordinators {
		c.elector = lead.NewElector(lead.ElectorConfig{
			Node: m.cfg.Node, Cloud: m.home.Campaign(i), Coordinator: c.upstream.Link(), Leases: c.leases,
			Seen: c.state.Election(), Lead: lead.Together(m.duties(c, forwarder, reporter)...), Metrics: c.metrics,
			Doubtful: m.cfg.Cloud.Doubtful, Ends: m.cfg.Ends, Prove: prove(cloud, m.cfg.Pool),
		})
		m.home.Elects(i, c.elector, m.complete(c))
	}
	return nil
}

// Reach keeps up the link to the coordinator and what needs nothing else, kubelet's heartbeats among them, until ctx ends.
func (m *Membership) Reach(ctx context.Context) error { return m.reach.Run(ctx) }

// TakePart stands for election, leads while elected, and brings to the coordinator what this node has, until ctx ends.
func (m *Membership) TakePart(ctx context.Context) error { return m.part.Run(ctx) }

// Link returns the state of the link to the coordinator.
func (m *Membership) Link() *live.Value[link.State] { return m.link }

// Standing returns this hub's role in its pool, and who leads.
func (m *Membership) Standing() *live.Value[lead.Standing] { return m.standing }

// Mirror returns what can be read at the coordinator; nil means nothing.
func (m *Membership) Mirror() *cache.Pool { return m.mirror }

// Reached returns clients, as this node, of the coordinators that this hub reaches now, by slot.
func (m *Membership) Reached() map[int]rest.Interface {
	all := map[int]rest.Interface{}
	for _, c := range m.coordinators {
		if c.upstream.Link().Get() == link.Up {
			all[c.slot] = c.leases.RESTClient()
		}
	}
	return all
}

// Denied returns which nodes, hubs and certificates no longer count in the pool, as the cloud has last said. It is empty if the
// coordinators' addresses are configured.
func (m *Membership) Denied() []string { return strings.Fields(m.denied()) }

// Heartbeats answers requests for kubelet's own Lease.
func (m *Membership) Heartbeats() http.Handler { return m.heartbeats }

// StandIn takes what kubelet writes while the cloud does not answer; nil if the node brings nothing of its own.
func (m *Membership) StandIn() *share.Taker { return m.taker }

// Changed says that what is followed for the node's programs has changed. It does not block.
func (m *Membership) Changed() { m.changed() }

// Kubelet returns the finder of kubelet's serving certificate; nil without a coordinator.
func (m *Membership) Kubelet() *identity.KubeletFinder { return m.kubelet }

// URL returns where the coordinator is; empty if that is not known.
func (m *Membership) URL() string {
	if m.home == nil {
		return ""
	}
	return m.atHome().at()
}

// Word returns what the cloud has said about the coordinator's certificates.
func (m *Membership) Word() share.Word {
	ids, known := m.clients()
	return share.Word{Known: known, Clients: ids}
}
