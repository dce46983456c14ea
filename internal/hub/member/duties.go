package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/heartbeat"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/share"
	"yurtcoordinator/internal/hub/views"
)

// proofTimeout bounds the request that proves that a hub may lead.
const proofTimeout = 5 * time.Second

// heardWithin is how long ago a node may have renewed at a standby, so that the standby is left to it.
const heardWithin = 15 * time.Second

// forwarding returns a client of the cloud that acts as the pool's forwarding user. That user has no credentials: the pool's
// nodes impersonate it, and the cloud's audit log says which node did.
func (m *Membership) forwarding() (*coordinationv1client.CoordinationV1Client, error) {
	asForwarder := m.cfg.Cloud.RESTConfig()
	asForwarder.Impersonate = rest.ImpersonationConfig{UserName: m.cfg.Pool.ForwardingUser()}
	return coordinationv1client.NewForConfig(asForwarder)
}

// forwarder returns the part that forwards the pool's heartbeats, from every coordinator where this hub leads.
func (m *Membership) forwarder(cloud coordinationv1client.LeasesGetter) *heartbeat.Forwarder {
	proof := prove(cloud, m.cfg.Pool)
	return heartbeat.NewForwarder(heartbeat.ForwarderConfig{
		Node: m.cfg.Node, Cloud: cloud, Metrics: m.cfg.Metrics, Ends: m.cfg.Ends,
		Right: func(ctx context.Context) error {
			err := proof(ctx)
			if errors.Is(err, lead.ErrUnfit) {
				return err
			}
			return nil // the cloud has not said that it may not
		},
	})
}

// reporter returns the part that reports to the cloud which nodes this hub hears, wherever it leads.
func (m *Membership) reporter(cloud coordinationv1client.LeasesGetter) *lead.Reporter {
	return lead.NewReporter(lead.ReporterConfig{
		Node: m.cfg.Node, Pool: m.cfg.Pool, Cloud: cloud,
		Every: func() time.Duration { return reportEvery(m.cfg.LinkProfile()) }, Ends: m.cfg.Ends,
	})
}

// duties returns what this hub does while it leads at a coordinator. At each such coordinator it forwards heartbeats, and reports
// which nodes it hears there, because some nodes may reach only that coordinator. It also pushes the shared resources to each, so
// that a standby can become home at once. It compares lines only at home.
func (m *Membership) duties(c *coordinator, forwarder *heartbeat.Forwarder, reporter *lead.Reporter) []lead.Duty {
	forward := func(ctx context.Context, term edge.Term) error {
		err := forwarder.Run(ctx, heartbeat.Source{Slot: c.slot, Told: c.state}, term)
		if errors.Is(err, heartbeat.ErrUnable) {
			err = fmt.Errorf("%w: %w", lead.ErrUnfit, err)
		}
		return err
	}
	pusher := share.NewPool(share.PoolConfig{Config: m.pushes(c), Resources: shared{m}, Leases: c.leases})
	lines := lead.NewLineWatch(lead.LineWatchConfig{
		Node:   m.cfg.Node,
		Lines:  func(now time.Time) map[edge.NodeName]edge.Line { return reporter.Lines(edge.Slot(c.slot), now) },
		Rested: func(now time.Time) bool { return c.elector.Rested(now) }, Clock: m.cfg.Ends.Clock,
	})
	report := func(ctx context.Context, term edge.Term) error {
		from := lead.Source{Slot: edge.Slot(c.slot), Beats: c.state.Beats, Fillings: pusher.Fillings}
		return reporter.Run(ctx, from, term)
	}
	return []lead.Duty{
		{Name: "forward heartbeats", Run: forward}, {Name: "push", Run: pusher.Run}, {Name: "report", Run: report},
		{Name: "leave a standby to the leader at home", Run: func(ctx context.Context, _ edge.Term) error {
			return m.home.Leave(ctx, c.slot, m.cfg.Node, func(to edge.NodeName) bool {
				return c.state.Hears(to, heardWithin) && c.elector.Rested(m.cfg.Ends.Running())
			})
		}},
		m.home.Only(c.slot, lead.Duty{Name: "compare lines", Run: lines.Run}),
	}
}

// reportEvery returns how often a leader repeats its report of the pool to the cloud. A report costs 1 KB each way. The cloud
// believes it for two and a half times that interval.
func reportEvery(over v1alpha1.LinkProfile) time.Duration {
	if over == v1alpha1.LinkMetered {
		return 5 * time.Minute
	}
	return 3 * time.Minute
}

// prove returns a function that reads the pool's report as the forwarding user. Success shows that this hub may forward
// heartbeats: its link and its certificate are good, and it has every right but the one to write.
func prove(cloud coordinationv1client.LeasesGetter, pool edge.PoolName) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, proofTimeout)
		defer cancel()
		_, err := cloud.Leases(corev1.NamespaceNodeLease).Get(ctx, pool.ReportLease(0), metav1.GetOptions{})
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return fmt.Errorf("%w: %w: is this node in the NodePool %s, and has the pool a YurtCoordinator?",
				lead.ErrUnfit, err, pool)
		}
		return fmt.Errorf("find out whether this hub may forward heartbeats: %w", err)
	}
}

// pushes is the configuration with which the leader and this node push to a coordinator.
func (m *Membership) pushes(c *coordinator) share.Config {
	return share.Config{
		Node: m.cfg.Node, Transport: c.upstream.AsHub(), Base: c.address, Later: m.cfg.History.Raise, Metrics: c.metrics,
		Ends: m.cfg.Ends,
	}
}

// shared is what the leader pushes: a share.Set.
type shared struct{ of *Membership }

// Resources implements share.Set.
func (s shared) Resources() (all []share.Resource, changed <-chan struct{}) {
	members, changed := s.of.followed.Shared()
	for _, m := range members {
		all = append(all, share.Resource{GVR: m.Resource, Replica: m.Replica, Live: m.Live, Filling: m.Filling})
	}
	if m := s.of.followed.Wanted(views.OwnPool(s.of.cfg.Pool)); m != nil { // a cloud without NodePools has none
		all = append(all, share.Resource{GVR: edge.OwnNodePools, Replica: m.Replica, Live: m.Live, Optional: true})
	}
	return all, changed
}
