package pool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/line"
	"yurtcoordinator/lab/load"
)

var thinScenarios = []kit.Scenario{
	{
		Name: "thin-line", Run: thinLine,
		Lab: lab.Config{Pools: 1, Nodes: 3, Timing: lab.Stock, Kubelet: lab.Hollow, NoProxy: true},
		Doc: "128 kbit/s, 600 ms and a 64 KB queue: a fresh pool fills with 1000 Services of 50 endpoints, once, and " +
			"heartbeats stay on time meanwhile. A node without a hub runs beside it on the same kind of link.",
	},
}

// thin is the line of each node: 300 ms one way.
var thin = line.Shape{Rate: 128_000, Delay: 300 * time.Millisecond, Queue: 64 << 10}

const (
	// thinBeat is how long a heartbeat's round trip may take while a fill crosses the line. The line itself takes 600 ms of
	// that.
	thinBeat = 3 * time.Second
	// thinFill is how long the pool's fill may take. What it brings takes a minute at the line's rate.
	thinFill = 6 * time.Minute
	// beatEvery is the time between two heartbeats that are timed here; kubelet's own, each 10 s, go beside them.
	beatEvery = 2 * time.Second
)

func thinLine(t *kit.T) {
	spec := load.Spec{Services: 1000, EndpointsEach: 50, Nodes: t.Pool.Nodes()}
	t.Pool.Settled(2 * time.Minute)
	killPool(t)
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	for _, node := range t.Pool.Nodes() {
		forget(t, node)
	}
	t.Shape(lab.WAN, "pool/p1", thin, 1, false)

	without := withoutHub(t, t.Pool.Nodes()[2])
	t.Figure("list_without_hub_s", without.took.Seconds())
	t.Figure("longest_beat_without_hub_s", without.longest.Seconds())
	t.Figure("beats_lost_without_hub", float64(without.lost))

	started := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Start, t.Pool.CoordinatorNode(), lab.Coordinator))
	stops := map[string]func() beats{}
	for _, node := range t.Pool.Nodes() {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Hub))
		access, err := t.Lab.HubConfig(node)
		t.Must(err)
		stops[node] = beating(t, node, access)
	}
	t.Pool.Settled(3 * time.Minute)
	led := time.Now()
	t.Figure("pool_leads_after_s", led.Sub(started).Seconds())
	for _, resource := range []string{kit.EndpointSlices.Name, "services"} {
		t.Pool.Shared(thinFill, resource)
	}
	filled := time.Now()
	t.Figure("fill_s", filled.Sub(led).Seconds())
	t.Hold(30*time.Second, "a few heartbeats after the fill")
	end := time.Now()

	var longest, oldest time.Duration
	for node, stop := range stops {
		b := stop()
		t.Say("%s: %d heartbeats took up to %v; %d failed", node, b.count, b.longest.Round(time.Millisecond), b.lost)
		if longest = max(longest, b.longest); b.lost > 0 || b.count == 0 {
			t.Fail("of %d heartbeats through the hub of %s, %d failed: %w", b.count, node, b.lost, b.err)
		}
		renewals := t.Seen.Renewals(node, started)
		if len(renewals) == 0 {
			t.Fail("the Lease of %s was never renewed", node)
		}
		oldest = max(oldest, t.Seen.LargestAge(node, renewals[0], end))
	}
	t.Figure("longest_beat_s", longest.Seconds())
	t.Figure("largest_lease_age_s", oldest.Seconds())
	for resource, name := range map[string]string{kit.EndpointSlices.Resource: kit.EndpointSlices.Name, "services": "services"} {
		if n := readBy(t, "", started, resource); n != 1 {
			t.Fail("the pool has read all %s over the WAN %d times, want once: %+v", name, n, t.Pool.ListsOverWAN(resource))
		}
	}
	if longest > thinBeat {
		t.Fail("a heartbeat took %v while the pool was filled, want at most %v", longest, thinBeat)
	}
	if most := t.Config.Timing.Grace / 2; oldest > most {
		t.Fail("a Lease was not renewed in the cloud for %v, want at most %v", oldest, most)
	}
	for node, h := range t.Pool.Hubs() {
		if h.Cloud != "up" {
			t.Fail("the hub of %s says that its link is %s", node, h.Cloud)
		}
	}
}

// forget empties the disk of a node's hub, which does not run.
func forget(t *kit.T, node string) {
	dir, err := t.Lab.HubCacheDir(node)
	t.Must(err)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	t.Must(err)
	for _, f := range files {
		t.Must(os.RemoveAll(f))
	}
}

// beats are timed requests for a node's Lease.
type beats struct {
	count, lost int
	longest     time.Duration
	err         error // of the last one lost
	took        time.Duration
}

// beating sends requests for a node's Lease, and times them, until the returned function is called. Failures before the first
// answer do not count.
func beating(t *kit.T, node string, access *rest.Config) func() beats {
	access = rest.CopyConfig(access)
	access.Timeout = 30 * time.Second
	client := t.Client(access)
	ctx, stop := context.WithCancel(t.Ctx)
	var b beats
	var running sync.WaitGroup
	running.Go(func() {
		every := time.NewTicker(beatEvery)
		defer every.Stop()
		for {
			began := time.Now()
			_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				b.count++
				b.longest = max(b.longest, time.Since(began))
			case b.count > 0:
				b.lost++
				b.err = fmt.Errorf("after %v: %w", time.Since(began).Round(time.Millisecond), err)
			}
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() beats {
		stop()
		running.Wait()
		return b
	}
}

// withoutHub lists the objects that fill the pool straight from the cloud, over a node's own line. As a kubelet and a
// kube-proxy do without a hub, it sends heartbeats over one connection, and lists over another. It uses the cheapest list that
// they can ask for, a compressed one. A watch-list, which is what client-go asks for first, takes several times as long.
func withoutHub(t *kit.T, node string) beats {
	heart, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	stop := beating(t, node, heart)
	t.Hold(10*time.Second, "heartbeats without a hub, and nothing else")
	access, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	access.ContentType, access.Timeout = runtime.ContentTypeProtobuf, 10*time.Minute
	client := t.Client(access)
	began := time.Now()
	for _, list := range []func() error{
		func() error {
			_, err := client.DiscoveryV1().EndpointSlices("").List(t.Ctx, metav1.ListOptions{})
			return err
		},
		func() error {
			_, err := client.CoreV1().Services("").List(t.Ctx, metav1.ListOptions{})
			return err
		},
	} {
		t.Must(list())
	}
	took := time.Since(began)
	b := stop()
	b.took = took
	t.Say("without a hub: the lists took %v, %d heartbeats up to %v, %d failed", took.Round(time.Second), b.count,
		b.longest.Round(time.Millisecond), b.lost)
	return b
}
