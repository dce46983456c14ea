package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab"
	labload "yurtcoordinator/lab/load"
)

// The load of the pool's resources takes about two minutes.
const (
	sharedServices, sharedEndpoints = 1000, 50

	// First a steady rolling update, to measure the time to a client.
	steadyPerSecond, steadyFor = 20, 30 * time.Second

	// Then one as fast as the cloud allows: this many updates, or as many as fit into the time.
	burstUpdates, burstAtMost = 20_000, 100 * time.Second

	// idleFor is how long the hubs have nothing to do, with filled clients.
	idleFor = 10 * time.Second

	sharedTimeout = 5 * time.Minute
	// catchUp is how long a client may take to have what the cloud has.
	catchUp = 30 * time.Second
)

// Shared is what hubs cost that share the pool's resources: a follower's and the leader's, each with one client that reads
// Services and EndpointSlices as kube-proxy does. The plain proxy has such a client, too. During the steady update the
// follower's hub and the proxy each have one more client, which measures the time. The leader's hub has the coordinator as a
// further client.
type Shared struct {
	// Direct and Hub are the time from just before the write of a change to its event on a watch of all EndpointSlices:
	// straight at the cloud, and through the follower's hub. Added is the difference of the two for the same change.
	Direct Quantiles `json:"direct"`
	Hub    Quantiles `json:"hub"`
	Added  Quantiles `json:"added"`
	// Proxy and AddedByProxy are the same through the plain proxy, which asks the cloud, not the coordinator.
	Proxy        Quantiles `json:"proxy"`
	AddedByProxy Quantiles `json:"addedByProxy"`
	// Events is how many changes were compared.
	Events int `json:"events"`

	Follower HubCost `json:"follower"`
	Leader   HubCost `json:"leader"`
	// Plain is what the plain proxy uses.
	Plain HubCost `json:"plain"`
	// SteadyUpdates and BurstUpdates count the changes of EndpointSlices. BurstFor is how long the burst lasted.
	SteadyUpdates int           `json:"steadyUpdates"`
	BurstUpdates  int           `json:"burstUpdates"`
	BurstFor      time.Duration `json:"burstFor"`
}

// HubCost is what one hub uses, or the plain proxy.
type HubCost struct {
	// Filled is the memory with a filled client, Updated the memory after the burst, and Peak the highest RSS, in bytes.
	Filled  Memory `json:"filled"`
	Updated Memory `json:"updated"`
	Peak    int64  `json:"peak"`
	// Idle is the program's processor time in idleFor with nothing to do. Steady and Burst are the processor time that the
	// updates take in addition to that.
	Idle   time.Duration `json:"idle"`
	Steady time.Duration `json:"steady"`
	Burst  time.Duration `json:"burst"`
}

// shared makes the load, runs a client of the leader's hub here, and runs the rest on a follower's node.
func (c Config) shared(ctx context.Context, place standing) (Shared, error) {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	c.Progress(fmt.Sprintf("pool resources: making %d Services of %d endpoints", sharedServices, sharedEndpoints))
	admin, err := c.Lab.CloudConfig()
	if err != nil {
		return Shared{}, err
	}
	client, err := labload.Client(admin)
	if err != nil {
		return Shared{}, err
	}
	if _, err := labload.Services(ctx, client, sharedSpec(place.all)); err != nil {
		return Shared{}, err
	}
	through, err := c.Lab.HubConfig(place.leader)
	if err != nil {
		return Shared{}, err
	}
	stop, err := followed(ctx, through, client)
	if err != nil {
		return Shared{}, fmt.Errorf("client of the leader's hub: %w", err)
	}
	defer stop()
	m, err := c.load(ctx, place.follower, Spec{Leader: place.leader, Nodes: place.all})
	return m.Shared, err
}

func sharedSpec(nodes []string) labload.Spec {
	return labload.Spec{Services: sharedServices, EndpointsEach: sharedEndpoints, Nodes: nodes}
}

// followed starts a client and returns when it has what the cloud has. stop ends it.
func followed(ctx context.Context, access *rest.Config, cloud kubernetes.Interface) (stop func(), err error) {
	f, stop, err := startFollower(ctx, access)
	if err != nil {
		return nil, err
	}
	if err := equal(ctx, f, cloud); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func startFollower(ctx context.Context, access *rest.Config) (*labload.Follower, func(), error) {
	f, err := labload.NewFollower(access, labload.KubeProxy())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	return f, func() { cancel(); running.Wait() }, nil
}

// equal waits until a client has what the cloud has.
func equal(ctx context.Context, f *labload.Follower, cloud kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	want, err := labload.Read(ctx, cloud, labload.KubeProxy())
	if err != nil {
		return err
	}
	return f.WaitEqual(ctx, want)
}

// standing names the nodes with a part in the pool.
type standing struct {
	all              []string
	leader, follower string
}

// restartHubs restarts all hubs, so that no memory is measured that an earlier load left, and returns the new standing.
func (c Config) restartHubs(ctx context.Context, host string) (standing, error) {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	s, err := c.Lab.Status(ctx)
	if err != nil {
		return standing{}, err
	}
	for _, n := range s.Nodes {
		if err := c.Lab.Node(ctx, lab.Restart, n.Name, lab.Hub); err != nil {
			return standing{}, err
		}
	}
	for {
		if s, err = c.Lab.Status(ctx); err != nil {
			return standing{}, err
		}
		if place, ok := standingOf(s, host); ok {
			return place, nil
		}
		if err := run.Pause(ctx, 100*time.Millisecond); err != nil {
			return standing{}, fmt.Errorf("the hubs have not found their roles: %w", err)
		}
	}
}

// standingOf returns the standing once every hub leads or follows. The follower is not on the coordinator's node.
func standingOf(s lab.Status, host string) (place standing, ok bool) {
	for _, n := range s.Nodes {
		place.all = append(place.all, n.Name)
		switch {
		case n.Hub == nil:
			return standing{}, false
		case n.Hub.Role == "leader":
			place.leader = n.Name
		case n.Hub.Role != "follower":
			return standing{}, false
		case n.Name != host:
			place.follower = n.Name
		}
	}
	return place, place.leader != "" && place.follower != ""
}

// shared is the part of Load about the pool's resources. The load already exists, and the leader's client runs.
func (l *load) shared(ctx context.Context, progress func(string)) error {
	leader, err := findProcess("yurthub", "--node-name="+l.spec.Leader)
	if err != nil {
		return err
	}
	m := &l.m.Shared
	hubs := []*pair{{pid: l.hub, cost: &m.Follower}, {pid: leader, cost: &m.Leader}, {pid: l.proxy, cost: &m.Plain}}
	progress("pool resources: filling a client")
	client, stop, err := startFollower(ctx, l.spec.AsKubelet.config())
	if err != nil {
		return err
	}
	defer stop()
	plain, stopPlain, err := startFollower(ctx, l.spec.asProxy.config())
	if err != nil {
		return err
	}
	defer stopPlain()
	for _, c := range []*labload.Follower{client, plain} {
		if err := equal(ctx, c, l.admin); err != nil {
			return err
		}
	}
	if err := run.Pause(ctx, settle); err != nil {
		return err
	}
	idle, err := costing(hubs, func() error { return run.Pause(ctx, idleFor) })
	if err != nil {
		return err
	}
	for i, h := range hubs {
		h.idle = idle[i].Seconds() / idleFor.Seconds()
		if h.cost.Filled, err = memoryOf(h.pid); err != nil {
			return err
		}
	}
	progress("pool resources: a steady rolling update")
	steady, err := costing(hubs, func() error { return l.steady(ctx) })
	if err != nil {
		return err
	}
	progress("pool resources: a rolling update as fast as possible")
	burst, err := costing(hubs, func() error { return l.burst(ctx, client) })
	if err != nil {
		return err
	}
	for i, h := range hubs {
		h.cost.Idle, h.cost.Steady, h.cost.Burst = idle[i], steady[i], burst[i]
		if h.cost.Updated, err = memoryOf(h.pid); err != nil {
			return err
		}
		if h.cost.Peak, err = peakOf(h.pid); err != nil {
			return err
		}
	}
	return nil
}

// pair is a hub's process and its use of the processor.
type pair struct {
	pid  int
	cost *HubCost
	// idle is the share of a processor that the hub uses while nothing happens.
	idle float64
}

// costing returns the processor time that each hub uses while do runs, beyond its use while nothing happens.
func costing(hubs []*pair, do func() error) ([]time.Duration, error) {
	began := time.Now()
	count := func() ([]time.Duration, error) {
		all := make([]time.Duration, len(hubs))
		for i, h := range hubs {
			var err error
			if all[i], err = processorTime(h.pid); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	before, err := count()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	took, err := count()
	for i := range took {
		took[i] -= before[i] + time.Duration(hubs[i].idle*float64(time.Since(began)))
	}
	return took, err
}

// change is one version of one EndpointSlice, as a watch delivered it.
type change struct {
	written, arrived time.Time
}

// steady measures when changes arrive on three watches: one straight at the cloud, one through the hub and one through the
// plain proxy. All are in this one process, with the same client and the same decoding.
func (l *load) steady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The hub accepts only a revision from a whole list that it has shown; the cloud accepts any.
	through, err := l.client(Hub)
	if err != nil {
		return err
	}
	shown, err := through.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	receiving, ctx := errgroup.WithContext(ctx) // also the context of the watches, so that none ends earlier
	var seen [3]map[string]change               // by resourceVersion
	var events [3]watch.Interface
	ways := []Way{HTTP2, Hub, Proxy}
	for i, w := range ways {
		client, err := l.client(w)
		if err != nil {
			return err
		}
		if events[i], err = client.DiscoveryV1().EndpointSlices("").Watch(ctx, metav1.ListOptions{
			ResourceVersion: shown.ResourceVersion,
		}); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		defer events[i].Stop()
	}
	for i, w := range ways {
		receiving.Go(func() (err error) {
			if seen[i], err = changes(ctx, events[i]); err != nil {
				err = fmt.Errorf("%s: %w", w, err)
			}
			return err
		})
	}
	n, err := labload.Churn(ctx, l.admin, sharedSpec(l.spec.Nodes), steadyPerSecond, steadyFor)
	if err != nil {
		cancel()
		return errors.Join(err, receiving.Wait())
	}
	l.m.Shared.SteadyUpdates = n.Updates
	err = run.Pause(ctx, time.Second) // for the last to arrive
	cancel()
	if err := errors.Join(err, receiving.Wait()); err != nil {
		return err
	}
	m := &l.m.Shared
	if m.Events = len(seen[0]); m.Events < n.Updates {
		return fmt.Errorf("%d of %d changes arrived", m.Events, n.Updates)
	}
	for i, into := range []struct{ took, added *Quantiles }{
		{&m.Direct, new(Quantiles)}, {&m.Hub, &m.Added}, {&m.Proxy, &m.AddedByProxy},
	} {
		var took, added []time.Duration
		for revision, d := range seen[0] {
			c, ok := seen[i][revision]
			if !ok {
				return fmt.Errorf("%s: the change at revision %s has not arrived", ways[i], revision)
			}
			took, added = append(took, c.arrived.Sub(c.written)), append(added, c.arrived.Sub(d.arrived))
		}
		*into.took, *into.added = quantiles(took), quantiles(added)
	}
	return nil
}

// changes collects what a watch delivers until ctx ends. The object says when each change was written.
func changes(ctx context.Context, events watch.Interface) (map[string]change, error) {
	all := map[string]change{}
	over := func() bool { return ctx.Err() != nil } // a cancelled watch may end in any way
	for {
		select {
		case e, open := <-events.ResultChan():
			arrived := time.Now()
			slice, ok := e.Object.(*discoveryv1.EndpointSlice)
			switch {
			case over():
				return all, nil
			case !open:
				return nil, errors.New("the watch ended")
			case e.Type == watch.Error:
				return nil, apierrors.FromObject(e.Object)
			case !ok || e.Type != watch.Modified:
				return nil, fmt.Errorf("event %s of %T, want a change of an EndpointSlice", e.Type, e.Object)
			}
			written, err := time.Parse(time.RFC3339Nano, slice.Annotations[corev1.EndpointsLastChangeTriggerTime])
			if err == nil { // otherwise it is not part of this load
				all[slice.ResourceVersion] = change{written, arrived}
			}
		case <-ctx.Done():
			return all, nil
		}
	}
}

// burst changes the load as fast as the cloud allows. It stops after burstUpdates changes or after burstAtMost, and returns
// when the client has the last change.
func (l *load) burst(ctx context.Context, client *labload.Follower) error {
	began := time.Now()
	first := sequence(client)
	churning, enough := context.WithCancel(ctx)
	defer enough()
	var counting sync.WaitGroup
	counting.Go(func() {
		for run.Pause(churning, 250*time.Millisecond) == nil {
			if sequence(client)-first >= burstUpdates {
				enough()
			}
		}
	})
	n, err := labload.Churn(churning, l.admin, sharedSpec(l.spec.Nodes), 0, burstAtMost)
	if churning.Err() != nil && ctx.Err() == nil {
		err = nil // enough
	}
	enough()
	counting.Wait()
	if err != nil {
		return err
	}
	l.m.Shared.BurstUpdates, l.m.Shared.BurstFor = n.Updates, time.Since(began)
	return equal(ctx, client, l.admin)
}

// sequence returns the highest number of a change that a client has.
func sequence(f *labload.Follower) uint64 {
	var highest uint64
	for _, v := range f.State()[labload.EndpointSlicesResource] {
		highest = max(highest, v.Sequence)
	}
	return highest
}

// sharedRows has the budgets of pool resources.
func sharedRows(s Shared) []Row {
	latency := func(name string, of func(Quantiles) time.Duration, b Budget) Row {
		return Row{
			Key: "fanout_" + name, What: "change → client of a follower, " + name, Unit: "ms", Against: HTTP2, Budget: b,
			Ours: milliseconds(of(s.Hub)), Reference: milliseconds(of(s.Direct)), Added: milliseconds(of(s.Added)),
			Floor: milliseconds(of(s.Proxy)),
		}
	}
	rows := []Row{
		latency("p50", func(q Quantiles) time.Duration { return q.P50 }, Budget{}),
		latency("p99", func(q Quantiles) time.Duration { return q.P99 }, Budget{AddedAtMost, 20}),
	}
	fast := float64(s.BurstUpdates) / max(1, s.BurstFor.Seconds())
	perThousand := func(d time.Duration, events int) float64 { return d.Seconds() * 1000 / float64(max(events, 1)) }
	for _, who := range []struct {
		name          string
		cost          HubCost
		steady, burst float64
	}{
		{"follower", s.Follower, followerSteady, followerBurst}, {"leader", s.Leader, leaderSteady, leaderBurst},
	} {
		key, hub := "hub_"+who.name, who.name+"'s hub"
		rows = append(rows, memoryRows(key+"_filled", hub, fmt.Sprintf("%d Services × %d", sharedServices, sharedEndpoints),
			who.cost.Filled, 40)...)
		rows = append(rows, memoryRows(key+"_updated", hub, fmt.Sprintf("after %d updates", s.BurstUpdates),
			who.cost.Updated, 40)...)
		rows = append(rows,
			Row{
				Key: key + "_peak", What: hub + " RSS, most", Unit: "MB", Ours: float64(who.cost.Peak) / 1e6,
			},
			Row{
				Key: key + "_cpu_idle", What: hub + " CPU while nothing happens", Unit: "ms/s",
				Ours: milliseconds(who.cost.Idle) / idleFor.Seconds(), Floor: milliseconds(s.Plain.Idle) / idleFor.Seconds(),
			},
			toFloor(Row{
				Key: key + "_cpu_per_1000_events_steady", Unit: "s", Ours: perThousand(who.cost.Steady, s.SteadyUpdates),
				What:  fmt.Sprintf("%s CPU per 1000 events, %d a second", hub, steadyPerSecond),
				Floor: perThousand(s.Plain.Steady, s.SteadyUpdates), Budget: Budget{FloorAtMost, who.steady},
			}),
			toFloor(Row{
				Key: key + "_cpu_per_1000_events", Unit: "s", Ours: perThousand(who.cost.Burst, s.BurstUpdates),
				What:  fmt.Sprintf("%s CPU per 1000 events, %.0f a second", hub, fast),
				Floor: perThousand(s.Plain.Burst, s.BurstUpdates), Budget: Budget{FloorAtMost, who.burst},
			}))
	}
	return rows
}
