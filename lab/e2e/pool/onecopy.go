package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
)

var oneCopyScenarios = []kit.Scenario{
	largeCopy(3), largeCopy(10), largeCopy(30),
	{
		Name: "one-copy-services", Lab: oneCopyPool(10),
		Run: copyCase{
			services: 1000, endpoints: 50, quiet: 15 * time.Second, perSecond: 100, churn: 30 * time.Second, both: true,
		}.run,
		Doc: "`one-copy-10` with clients that also read Services, as kube-proxy does.",
	},
}

func largeCopy(nodes int) kit.Scenario {
	// Without hubs each change is sent once per node: to thirty nodes, two processors sent 30 to 50 a second.
	churn := time.Duration(max(30, 2*nodes)) * time.Second
	return kit.Scenario{
		Name: fmt.Sprintf("one-copy-%d", nodes), Lab: oneCopyPool(nodes),
		Run: copyCase{services: 1000, endpoints: 50, quiet: churn, perSecond: 100, churn: churn}.run,
		Doc: fmt.Sprintf("%d nodes, 1000 Services of 50 endpoints and a rolling update: the pool's WAN links carry no more than "+
			"one node's own copy would.", nodes),
	}
}

// oneCopyPool has hubs and nothing else that uses the WAN. They keep nothing on disk: each start must be a first one.
func oneCopyPool(nodes int) lab.Config {
	return lab.Config{
		Pools: 1, Nodes: nodes, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoProxy: true,
		HubFlags: []string{"--disk-cache-path="},
	}
}

// copyCase is a load, and what is done with it.
type copyCase struct {
	services, endpoints int
	// quiet is how long nothing happens, to measure the traffic of nodes that have nothing to report. With thirty nodes with
	// kubelets, that traffic is a fifth of a rolling update's, so it must be measured for long enough.
	quiet time.Duration
	// churn is how long the load changes, perSecond times a second. It is a number of whole rounds of a rolling update. A round
	// takes three changes of an object, and leaves the object as large as before.
	perSecond float64
	churn     time.Duration
	// both says that clients read Services and EndpointSlices; otherwise only EndpointSlices.
	both bool
}

// mostCopy is the traffic that a whole pool may need, as a multiple of that of one node without hubs.
const mostCopy = 1.05

// The clients' names in the audit log.
const (
	directAgent = "one-copy-direct"
	hubAgent    = "one-copy-hub"
)

// phase is the traffic of all nodes' WAN links while something happened.
type phase struct {
	bytes map[string]float64 // by node, both ways
	took  time.Duration
}

func (p phase) total() float64 {
	sum := 0.0
	for _, n := range p.bytes {
		sum += n
	}
	return sum
}

// most returns the node whose link carried the most.
func (p phase) most() string {
	most := ""
	for _, node := range slices.Sorted(maps.Keys(p.bytes)) {
		if most == "" || p.bytes[node] > p.bytes[most] {
			most = node
		}
	}
	return most
}

// during measures the traffic while do runs.
func during(t *kit.T, what string, do func()) phase {
	t.Must(t.Lab.MarkTraffic(t.Ctx))
	began := time.Now()
	do()
	traffic, err := t.Lab.Traffic(t.Ctx, true)
	t.Must(err)
	p := phase{bytes: map[string]float64{}, took: time.Since(began)}
	for node, b := range traffic {
		p.bytes[node] = float64(b.Up + b.Down)
	}
	most := p.most()
	t.Say("%s: %.0f bytes in %.1f s over %d links, most of it, %.0f, over %s's", what, p.total(), p.took.Seconds(),
		len(p.bytes), p.bytes[most], most)
	return p
}

// less returns the traffic of a phase beyond that of a quiet time of the same length.
func (p phase) less(quiet phase) float64 {
	return p.total() - quiet.total()/quiet.took.Seconds()*p.took.Seconds()
}

// run measures, one after another in one lab:
//
//   - a start of the pool with an empty cloud, and a quiet time after it: the traffic of hubs that have nothing to share;
//   - the same clients on all nodes without hubs, straight at the cloud, each over its own node's WAN link: their first
//     fill, and a rolling update. One node's share of that traffic is the reference;
//   - a start of the pool with the load in the cloud, the same clients through the hubs, and again a rolling update.
//
// The load is made while no hub runs. So the pool's first fill is a list, not the changes that made the load.
func (c copyCase) run(t *kit.T) {
	spec := load.Spec{Services: c.services, EndpointsEach: c.endpoints, Nodes: t.Pool.Nodes()}
	follow := load.FollowSpec{Streams: load.KubeProxy().Streams[1:], Compared: load.Namespace}
	shared := []kit.Collection{kit.EndpointSlices}
	if c.both {
		follow.Streams = load.KubeProxy().Streams
		shared = append(shared, kit.Collection{Name: "services", Resource: "services"})
	}
	t.Pool.Settled(2 * time.Minute)
	killPool(t)
	empty := during(t, "start of the pool, nothing in the cloud", func() { startPool(t, shared) })
	quiet := during(t, "quiet", func() { t.Hold(c.quiet, "nothing happens") })
	killPool(t)
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)

	d := clients(t, c, spec, follow, directAgent, t.Lab.CloudConfigFrom)
	if n := readBy(t, directAgent, time.Time{}, kit.EndpointSlices.Resource); n != t.Config.Nodes {
		t.Fail("the direct clients have read all EndpointSlices %d times, want once each: the reference is not one", n)
	}

	started := time.Now()
	full := during(t, "start of the pool, the load in the cloud", func() { startPool(t, shared) })
	s := clients(t, c, spec, follow, hubAgent, t.Lab.HubConfig)
	for _, resource := range shared {
		if n := readBy(t, "", started, resource.Resource); n != 1 {
			t.Fail("the pool has read all %s over the WAN %d times, want once: %+v", resource.Name, n,
				t.Pool.ListsOverWAN(resource.Resource))
		}
	}

	nodes := float64(t.Config.Nodes)
	fill := full.less(quiet) - empty.less(quiet)
	oneFill, oneUpdate := d.fill.total()/nodes, d.churn.total()/nodes/float64(d.updates)
	update := s.churn.less(quiet) / float64(s.updates)
	t.Figure("quiet_bytes_per_node_s", quiet.total()/quiet.took.Seconds()/nodes)
	t.Figure("start_bytes_per_node", empty.total()/nodes)
	t.Figure("fill_direct_one_node_bytes", oneFill)
	t.Figure("fill_direct_pool_bytes", d.fill.total())
	t.Figure("fill_pool_bytes", fill)
	t.Figure("fill_clients_bytes", s.fill.less(quiet))
	t.Figure("update_direct_one_node_bytes", oneUpdate)
	t.Figure("update_direct_pool_bytes", oneUpdate*nodes)
	t.Figure("update_pool_bytes", update)
	t.Figure("update_pool_ratio", update/oneUpdate)
	t.Figure("fill_pool_ratio", fill/oneFill)
	// The whole of it: a start, a fill, clients and churn, compared with one node's own copy.
	total := fill + s.fill.less(quiet) + s.churn.less(quiet)
	t.Figure("total_pool_ratio", total/(oneFill+oneUpdate*float64(s.updates)))
	for what, ratio := range map[string]float64{"the fill": fill / oneFill, "an update": update / oneUpdate} {
		if ratio > mostCopy {
			t.Fail("%s costs the pool %.3f times what it costs one node without hubs, want at most %.2f", what, ratio, mostCopy)
		}
	}
	if update < 0.5*oneUpdate {
		t.Fail("an update costs the pool %.0f bytes, one node without hubs %.0f: something was not carried", update, oneUpdate)
	}
	t.Figure("fill_direct_s", d.fill.took.Seconds())
	t.Figure("start_of_pool_s", full.took.Seconds())
	t.Figure("fill_s", s.fill.took.Seconds())
	t.Figure("behind_direct_s", (d.churn.took - c.churn).Seconds()) // the end of the updates
	t.Figure("behind_s", (s.churn.took - c.churn).Seconds())
}

// startEvery is the time between the starts of two hubs. All hubs share this machine's processors, so thirty starts at once are
// slower than on any real machine. A hub whose first probe of the coordinator takes more than a second does not wait for the
// pool.
const startEvery = 200 * time.Millisecond

// killPool ends all hubs of the first pool and its coordinator.
func killPool(t *kit.T) {
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, t.Pool.CoordinatorNode(), lab.Coordinator))
	for _, node := range t.Pool.Nodes() {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Hub))
	}
}

// startPool starts the first pool's coordinator and, when the coordinator serves, the pool's hubs. It returns when every hub
// has the shared resources from the right source.
func startPool(t *kit.T, shared []kit.Collection) {
	t.Must(t.Lab.Node(t.Ctx, lab.Start, t.Pool.CoordinatorNode(), lab.Coordinator))
	access, err := t.Lab.CoordinatorConfig(1, t.Pool.CoordinatorNode())
	t.Must(err)
	client, err := rest.HTTPClientFor(access)
	t.Must(err)
	defer client.CloseIdleConnections()
	t.Eventually(30*time.Second, "the coordinator is ready", func() error {
		answer, err := kit.Fetch(t.Ctx, client, access.Host+"/readyz")
		if err == nil && answer != "ok" {
			err = fmt.Errorf("it answers %q", answer)
		}
		return err
	})
	t.Say("starting %d hubs, one each %v", t.Config.Nodes, startEvery)
	for _, node := range t.Pool.Nodes() {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Hub))
		select {
		case <-time.After(startEvery):
		case <-t.Ctx.Done():
			t.Fail("starting hubs: %w", context.Cause(t.Ctx))
		}
	}
	t.Pool.Settled(2 * time.Minute)
	for _, resource := range shared {
		t.Pool.Shared(time.Minute, resource.Name)
	}
}

// readBy counts the nodes' reads of all of a resource after since, by clients of the name agent. An empty agent means all
// clients except those that ask the cloud directly.
func readBy(t *kit.T, agent string, since time.Time, resource string) int {
	n := 0
	for _, l := range t.Pool.ListsOverWAN(resource) {
		if !l.At.Before(since) && (l.Agent == agent || agent == "" && l.Agent != directAgent) {
			n++
		}
	}
	return n
}

// copied is the traffic that clients on all nodes have cost.
type copied struct {
	fill, churn phase
	updates     int
}

// clients runs a client on each node, from its first read until it has followed a rolling update. In the end each client must
// have what the cloud has.
func clients(t *kit.T, c copyCase, spec load.Spec, follow load.FollowSpec, agent string,
	access func(node string) (*rest.Config, error),
) copied {
	follow.Agent = agent
	var all []*load.Follower
	for _, node := range t.Pool.Nodes() {
		cfg, err := access(node)
		t.Must(err)
		f, err := load.NewFollower(cfg, follow)
		t.Must(err)
		all = append(all, f)
	}
	ctx, stop := context.WithCancel(t.Ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var done copied
	done.fill = during(t, agent+": clients on all nodes are filled", func() {
		for _, f := range all {
			running.Go(func() { _ = f.Run(ctx) })
		}
		equal(t, all, follow)
	})
	done.churn = during(t, agent+": rolling update", func() {
		n, err := load.Churn(t.Ctx, t.Cloud, spec, c.perSecond, c.churn)
		t.Must(err)
		equal(t, all, follow)
		done.updates = n.Updates
	})
	t.Say("%s: %d updates", agent, done.updates)
	if done.updates < c.services {
		t.Fail("only %d updates were made of %d Services", done.updates, c.services)
	}
	return done
}

// equal waits until all clients have what the cloud has of the load.
func equal(t *kit.T, all []*load.Follower, follow load.FollowSpec) {
	want, err := load.Read(t.Ctx, t.Cloud, follow)
	t.Must(err)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Ctx, 2*time.Minute)
	defer cancel()
	for i, f := range all {
		if err := f.WaitEqual(ctx, want); err != nil {
			t.Fail("the client on %s has not what the cloud has: %w", t.Pool.Nodes()[i], err)
		}
	}
	t.Say("all clients have what the cloud has (%.2fs)", time.Since(began).Seconds())
}
