package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/coordinators"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/share"
	"yurtcoordinator/internal/hub/upstream"
)

// coordinator is one of the pool's coordinators, as this hub reaches it.
type coordinator struct {
	slot int
	// at returns its URL, https://IP:PORT; empty means unknown.
	at func() string
	// address names it in requests, upstream reaches it as this node, and leases is a client of it.
	address  *url.URL
	upstream *upstream.Upstream
	leases   *coordinationv1client.CoordinationV1Client
	// state is what the coordinator tells of the pool. elector is this hub's in the election there.
	state   *lead.State
	elector *lead.Elector
	// metrics takes the metrics of what this hub does at this coordinator. If the pool may have several coordinators, collected
	// is the same registry, which is shown only while this coordinator is home. Otherwise collected is nil.
	metrics   prometheus.Registerer
	collected *prometheus.Registry
}

// named returns the name of a part that belongs to this coordinator.
func (c *coordinator) named(part string) string {
	if c.slot == 0 {
		return part
	}
	return part + " in slot " + strconv.Itoa(c.slot)
}

// reachCoordinators creates the upstreams to the coordinators: at the configured addresses, or at those that the cloud names.
func (m *Membership) reachCoordinators() error {
	if len(m.cfg.At) == 0 {
		finder, err := m.findCoordinator()
		if err != nil {
			return err
		}
		for slot := range edge.Slot(edge.MaxSlots) {
			found := finder.In(slot)
			config := m.cfg.Via
			config.CAFile, config.Address, config.CA = "", found.Address, finder.CA
			if err := m.reachCoordinator(finder.Name(), found.URL, config); err != nil {
				return err
			}
			m.seek(finder, slot)
		}
		m.retime(finder.Target())
		m.denied, m.clients = func() string { return finder.Target().Denied }, finder.Clients
		return nil
	}
	for _, at := range m.cfg.At {
		if err := m.reachCoordinator(at, at.String, m.cfg.Via); err != nil {
			return err
		}
	}
	return nil
}

// reachCoordinator creates the upstream to the coordinator of the next slot.
func (m *Membership) reachCoordinator(address *url.URL, at func() string, config upstream.Config) error {
	c := &coordinator{slot: len(m.coordinators), at: at, address: address, metrics: m.cfg.Metrics}
	config.Name, config.Servers, config.Link = "coordinator", []*url.URL{address}, link.Near()
	if len(m.cfg.At) > 1 {
		config.Link = link.Beside()
	}
	if len(m.cfg.At) != 1 {
		c.collected = prometheus.NewRegistry()
		c.metrics = c.collected
	}
	if c.slot > 0 {
		config.Name += "-" + strconv.Itoa(c.slot)
	}
	var err error
	if c.upstream, err = upstream.New(config); err != nil {
		return fmt.Errorf("the pool's coordinator in slot %d: %w", c.slot, err)
	}
	if c.leases, err = coordinationv1client.NewForConfig(c.upstream.RESTConfig()); err != nil {
		return err
	}
	c.state = lead.NewState(lead.StateConfig{
		Link: c.upstream.Link(), Transport: c.upstream.AsHub(), Base: address, Ends: m.cfg.Ends,
	})
	m.reach.Add(config.Name, c.upstream.Run)
	m.reach.Add(c.named("the pool's state"), c.state.Run)
	m.coordinators = append(m.coordinators, c)
	return nil
}

// errNoCoordinator says that none is known to live.
var errNoCoordinator = errors.New("this hub reaches no coordinator of the pool")

// Dial opens a connection to home, if home is known to live.
func (m *Membership) Dial(ctx context.Context, _ string) (net.Conn, error) {
	at, err := url.Parse(m.URL())
	if err != nil || at.Host == "" || m.link.Get() != link.Up {
		return nil, errors.Join(errNoCoordinator, err)
	}
	return m.cfg.Via.DialContext(ctx, "tcp", at.Host)
}

func (m *Membership) findCoordinator() (*coordinators.Finder, error) {
	cloud, err := corev1client.NewForConfig(m.cfg.Cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	finder := coordinators.NewFinder(coordinators.FinderConfig{
		Pool: m.cfg.Pool, ConfigMaps: cloud.ConfigMaps(edge.NamespaceSystem), Dir: m.cfg.Dir, Ends: m.cfg.Ends,
		Reachable: m.cfg.Cloud.NotDown, Moved: func(slot edge.Slot, is coordinators.Target) {
			m.coordinators[slot].upstream.Moved()
			m.retime(is)
		},
	})
	m.reach.Add("where the coordinators are", finder.Run)
	return finder, nil
}

// retime makes each link to a coordinator judged by the timing that fits the coordinators known now.
func (m *Membership) retime(known coordinators.Target) {
	for _, c := range m.coordinators {
		c.upstream.Retime(timing(known, edge.Slot(c.slot)))
	}
}

// timing returns the link timing for a slot's coordinator. It depends on whether that coordinator's address is known, and on
// whether the pool has others.
func timing(known coordinators.Target, slot edge.Slot) link.Timing {
	switch {
	case known.In(slot).Address == "":
		return link.Nowhere()
	case len(known.Servers()) > 1:
		return link.Beside()
	default:
		return link.Near()
	}
}

// seek looks on the LAN for the coordinator of a slot.
func (m *Membership) seek(finder *coordinators.Finder, slot edge.Slot) {
	c := m.coordinators[slot]
	seeker := coordinators.NewSeeker(coordinators.SeekerConfig{
		Finder: finder, Slot: slot, Cloud: m.cfg.Cloud.Link(), Coordinator: c.upstream.Link(), Dial: m.cfg.Via.DialContext,
		Certificate: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(m.cfg.Via.CertFile, m.cfg.Via.KeyFile)
			return &pair, err
		},
		Now: func() time.Time {
			if by := m.cfg.Via.CertificateTime; by != nil {
				return by.Now()
			}
			return m.cfg.Ends.Wall()
		},
		Chance: m.cfg.Ends.Chance,
	})
	m.reach.Add(c.named("look for a coordinator that has moved"), seeker.Run)
}

// settle creates the part that decides which coordinator is home.
func (m *Membership) settle() {
	config := coordinators.HomeConfig{Cloud: m.cfg.Cloud.Link(), Metrics: m.cfg.Metrics, Clock: m.cfg.Ends.Clock}
	for _, c := range m.coordinators {
		config.Slots = append(config.Slots, coordinators.Slot{Link: c.upstream.Link(), Transport: c.upstream.AsNode()})
	}
	m.home = coordinators.NewHome(config)
	m.link = m.home.Link()
	if len(m.coordinators) > 1 && m.cfg.Metrics != nil {
		m.cfg.Metrics.MustRegister(atHome{m})
	}
	m.reach.Add("which coordinator is home", m.home.Run)
}

// atHome is the coordinator that is home.
func (m *Membership) atHome() *coordinator { return m.coordinators[m.home.At().Get()] }

// complete returns a function that asks a coordinator whether it has everything that this hub could bring there.
func (m *Membership) complete(c *coordinator) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		select {
		case <-m.followed.Begun():
			return share.Complete(ctx, m.pushes(c), shared{m})
		case <-ctx.Done():
			return false, errors.New("nothing is followed yet")
		}
	}
}

// atHome collects the metrics of what this hub does at its home. What it does at standbys is not counted.
type atHome struct{ *Membership }

// Describe implements prometheus.Collector: it says nothing, as home has yet to be found.
func (atHome) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (a atHome) Collect(into chan<- prometheus.Metric) { a.atHome().collected.Collect(into) }

// Coordinators returns what this hub sees of the coordinators that it knows of, in the order of their slots.
func (m *Membership) Coordinators() (all []edge.CoordinatorStatus) {
	for _, c := range m.coordinators {
		at := c.at()
		if at == "" {
			continue
		}
		all = append(all, edge.CoordinatorStatus{
			Slot: c.slot, Address: at, Link: c.upstream.Link().Get().String(), Home: c == m.atHome(),
			Leader: c.elector.Standing().Get().Leader,
		})
	}
	return all
}
