package wanday

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab"
	labload "yurtcoordinator/lab/load"
)

// The pools of the lab.
const (
	poolShared = 1 + iota // with a coordinator
	poolBare              // without hubs
	poolAlone             // hubs without a coordinator
)

// Cluster is what happens in the cluster while it is measured.
type Cluster string

// Clusters.
const (
	// Idle is a cluster in which nothing changes.
	Idle Cluster = "idle"
	// Quiet is a cluster in which a Pod of a Service is replaced each minute.
	Quiet Cluster = "quiet"
	// Busy is a cluster in which a Deployment of rollingPods Pods is rolled over each minute.
	Busy Cluster = "busy"
)

// Clusters are all, in the order in which they are measured.
func Clusters() []Cluster { return []Cluster{Idle, Quiet, Busy} }

const (
	// services and endpointsEach are the size of the cluster's Services, which don't change.
	services, endpointsEach = 100, 10
	// rollingPods is the size of the Deployment that changes. Each Pod is three changes of an EndpointSlice.
	rollingPods, changesPerPod = 20, 3
	// changesPerSecond is the rate of these changes: a Pod is replaced within a second.
	changesPerSecond = 3
	// turn is the time from one change of the cluster to the next.
	turn = time.Minute

	// readyFor bounds the time in which hubs find their roles. Then the lab is left alone for the time of settle, because the
	// cost of a start is not part of a day.
	readyFor = 2 * time.Minute
	settle   = 90 * time.Second
)

// Config is what Run needs.
type Config struct {
	// Lab is a running lab with the configuration of the function Lab.
	Lab *lab.Client
	// For is how long each cluster is measured. A cluster without an entry is left out.
	For map[Cluster]time.Duration
	// Progress is called with each step.
	Progress func(string)
}

// Setup is what the lab has.
type Setup struct {
	// Nodes is how many nodes the pool with a coordinator has, Others how many each of the two other pools has.
	Nodes, Others int
	// Kubelet is real or hollow.
	Kubelet lab.Kubelet
	// Installed has the system installed as in a real cluster.
	Installed bool
	// HubFlags are given to every hub.
	HubFlags []string
}

// Lab returns the lab to measure in.
func Lab(name string, s Setup) lab.Config {
	c := lab.Config{
		Name: name, Pools: poolAlone, Nodes: s.Nodes, Kubelet: s.Kubelet, Timing: lab.Stock, AuditAll: true,
		HubFlags: s.HubFlags,
		Variants: map[int]lab.Variant{
			poolBare:  {Nodes: s.Others, NoHub: true},
			poolAlone: {Nodes: s.Others, NoCoordinator: true},
		},
	}
	if s.Installed {
		c = c.AsInstalled()
	}
	return c
}

// Run measures and returns the report. It fails only if the measuring does.
func Run(ctx context.Context, c Config) (Report, error) {
	admin, err := c.Lab.CloudConfig()
	if err != nil {
		return Report{}, err
	}
	client, err := labload.Client(admin)
	if err != nil {
		return Report{}, err
	}
	c.Progress(fmt.Sprintf("making %d Services of %d endpoints", services, endpointsEach))
	if _, err := labload.Services(ctx, client, labload.Spec{Services: services, EndpointsEach: endpointsEach}); err != nil {
		return Report{}, err
	}
	if _, err := labload.Services(ctx, client, rolling); err != nil {
		return Report{}, err
	}
	if err := c.ready(ctx); err != nil {
		return Report{}, err
	}
	c.Progress(fmt.Sprintf("every hub has its role; leaving the lab alone for %v", settle))
	if err := run.Pause(ctx, settle); err != nil {
		return Report{}, err
	}
	var r Report
	for _, cluster := range Clusters() {
		if c.For[cluster] <= 0 {
			continue
		}
		c.Progress(fmt.Sprintf("measuring: a cluster that is %s, for %v", cluster, c.For[cluster]))
		measured, err := c.measure(ctx, client, cluster)
		if err != nil {
			return Report{}, fmt.Errorf("%s: %w", cluster, err)
		}
		r.Measured = append(r.Measured, measured)
	}
	return r, nil
}

// rolling is the Deployment that changes, as its Service shows it.
var rolling = labload.Spec{Namespace: "rolling", Services: 1, EndpointsEach: rollingPods, Writers: 1}

// ready waits until every hub knows its link's state, and each hub of the pool with a coordinator also knows the leader.
func (c Config) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyFor)
	defer cancel()
	for {
		s, err := c.Lab.Status(ctx)
		if err != nil {
			return err
		}
		kinds, err := kindsOf(s)
		if err == nil {
			return nil
		}
		if run.Pause(ctx, time.Second) != nil {
			return errors.Join(fmt.Errorf("%d nodes are ready to be measured", len(kinds)), err, context.Cause(ctx))
		}
	}
}

// kindsOf says what each node is.
func kindsOf(s lab.Status) (map[string]Kind, error) {
	kinds := map[string]Kind{}
	for _, n := range s.Nodes {
		kind, err := kindOf(n)
		if err != nil {
			return kinds, fmt.Errorf("%s: %w", n.Name, err)
		}
		kinds[n.Name] = kind
	}
	return kinds, nil
}

func kindOf(n lab.NodeStatus) (Kind, error) {
	pool, _, _ := strings.Cut(n.Name, "-")
	switch {
	case pool == fmt.Sprintf("p%d", poolBare):
		return NoHub, nil
	case n.Hub == nil:
		return "", errors.New("its hub does not answer")
	case n.Hub.Cloud != "up":
		return "", fmt.Errorf("its link to the cloud is %s", n.Hub.Cloud)
	case pool == fmt.Sprintf("p%d", poolAlone):
		return Alone, nil
	case n.Hub.Role == "leader":
		return Leader, nil
	case n.Hub.Role == "follower":
		return Follower, nil
	}
	return "", fmt.Errorf("its role is %s", n.Hub.Role)
}

// measure makes the cluster change as it has to, and returns what each link has carried meanwhile.
func (c Config) measure(ctx context.Context, client kubernetes.Interface, cluster Cluster) (Measured, error) {
	kinds, err := c.kinds(ctx)
	if err != nil {
		return Measured{}, err
	}
	before, err := c.read(ctx, kinds)
	if err != nil {
		return Measured{}, err
	}
	over, cancel := context.WithTimeout(ctx, c.For[cluster])
	defer cancel()
	var changing sync.WaitGroup
	var failed error
	changing.Go(func() { failed = change(over, client, cluster) })
	<-over.Done()
	if ctx.Err() != nil {
		return Measured{}, context.Cause(ctx)
	}
	after, err := c.read(ctx, kinds)
	if err != nil {
		return Measured{}, err
	}
	changing.Wait()
	if failed != nil {
		return Measured{}, failed
	}
	requests, err := c.Lab.Requests(ctx, before.at, after.at)
	if err != nil {
		return Measured{}, err
	}
	m := newMeasured(cluster, kinds, before, after, requests)
	now, err := c.kinds(ctx)
	if err != nil {
		return Measured{}, err
	}
	for node, kind := range kinds {
		if now[node] != kind {
			m.Moved = append(m.Moved, fmt.Sprintf("%s: %s, then %s", node, kind, now[node]))
		}
	}
	slices.Sort(m.Moved)
	return m, nil
}

func (c Config) kinds(ctx context.Context) (map[string]Kind, error) {
	s, err := c.Lab.Status(ctx)
	if err != nil {
		return nil, err
	}
	return kindsOf(s)
}

// change changes the cluster until ctx ends.
func change(ctx context.Context, client kubernetes.Interface, cluster Cluster) error {
	pods := map[Cluster]int{Quiet: 1, Busy: rollingPods}[cluster]
	if pods == 0 {
		return nil
	}
	for {
		took := time.Duration(pods*changesPerPod/changesPerSecond) * time.Second
		_, err := labload.Churn(ctx, client, rolling, changesPerSecond, took)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it is over
		}
		if err != nil {
			return err
		}
		if err := run.Pause(ctx, turn-took); err != nil {
			return nil //nolint:nilerr // it is over
		}
	}
}
