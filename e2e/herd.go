package e2e

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
	"yurtcoordinator/internal/lab/wire"
)

var herdScenarios = []Scenario{
	{
		Name: "thundering-herd",
		Lab: lab.Config{
			Pools: herdPools, Nodes: 200 / herdPools, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoProxy: true,
		},
		run: thunderingHerd,
		Doc: "200 hubs lose the cloud at once and come back at once, by their links, by the cloud's restart and by their own: " +
			"nobody lists anything again, but for a few where the cloud has forgotten",
	},
}

// herdPools is how many pools the 200 hubs are in.
const herdPools = 5

// herd are the hubs of all pools.
type herd struct {
	*T
	nodes []string
	// since is when the last fault was over.
	since time.Time
}

func thunderingHerd(t *T) {
	_, err := load.Services(t.ctx, t.cloud, herdLoad(t))
	t.must(err)
	h := &herd{T: t}
	status, err := t.lab.Status(t.ctx)
	t.must(err)
	for _, n := range status.Nodes {
		h.nodes = append(h.nodes, n.Name)
	}
	h.current(3*time.Minute, "after the boot")
	h.used()
	h.lists("at_boot", 1)

	h.fault("links", func(during func()) {
		for p := 1; p <= herdPools; p++ {
			t.must(t.lab.Cut(t.ctx, lab.WAN, fmt.Sprintf("pool/p%d", p), wire.Drop))
		}
		t.hold(15*time.Second, "all hubs have lost the cloud")
		during()
		for p := 1; p <= herdPools; p++ {
			t.must(t.lab.Heal(t.ctx, lab.WAN, fmt.Sprintf("pool/p%d", p)))
		}
	}, 0)
	h.fault("hubs", func(during func()) {
		h.all(lab.Kill)
		during()
		h.all(lab.Start)
	}, 0)
	// A kube-apiserver that has just started says 410 to who is behind the latest write of any kind. Then each leader lists,
	// and a follower here and there that has not heard of its leader for too long: all of them share this machine.
	h.fault("cloud", func(func()) {
		t.must(t.lab.Cloud(t.ctx, lab.Restart, lab.KubeAPIServer))
	}, 4)
}

func herdLoad(t *T) load.Spec {
	return load.Spec{Services: 200, EndpointsEach: 20, Nodes: t.nodeNames()}
}

// fault breaks something for all hubs at once, has the load change in between, and expects each pool to list no resource more
// often than most times.
func (h *herd) fault(name string, do func(during func()), most int) {
	h.say("fault: %s", name)
	h.since = time.Now()
	h.must(h.lab.MarkTraffic(h.ctx))
	do(func() {
		changes := h.churn(herdLoad(h.T), 50)
		h.hold(5*time.Second, "the load changes")
		h.say("%d changes", h.end(changes))
	})
	healed := time.Now()
	h.current(2*time.Minute, "after "+name)
	h.figure("current_after_"+name+"_s", time.Since(healed).Seconds())
	traffic, err := h.lab.Traffic(h.ctx, true)
	h.must(err)
	sum := lab.Total(traffic)
	h.figure("wan_bytes_after_"+name, float64(sum.Up+sum.Down))
	h.hold(10*time.Second, "those that come late")
	h.lists("after_"+name, most)
}

// all does the same to all hubs, as many at a time as one operator would with a switch.
func (h *herd) all(a lab.Action) {
	var g errgroup.Group
	g.SetLimit(32)
	for _, n := range h.nodes {
		g.Go(func() error { return h.lab.Node(h.ctx, a, n, lab.Hub) })
	}
	h.must(g.Wait())
}

// current waits until every hub has the latest EndpointSlices, and each pool one leader.
func (h *herd) current(within time.Duration, when string) {
	latest := edge.Revision(0)
	list, err := h.cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(h.ctx, metav1.ListOptions{})
	h.must(err)
	for _, s := range list.Items {
		r, err := edge.ParseRevision(s.ResourceVersion)
		h.must(err)
		latest = max(latest, r)
	}
	h.eventually(within, fmt.Sprintf("all %d hubs have all EndpointSlices %s", len(h.nodes), when), func() error {
		status, err := h.lab.Status(h.ctx)
		if err != nil {
			return err
		}
		behind, leaders, example := 0, map[string]int{}, ""
		for _, n := range status.Nodes {
			var r lab.ReplicaStatus
			if n.Hub != nil {
				r, _ = n.Hub.Replica(endpointSlices.name)
				if n.Hub.Role == roleLeader {
					leaders[n.Pool]++
				}
			}
			if r.Source == "none" || edge.Revision(r.Revision) < latest {
				behind++
				example = fmt.Sprintf("%s: %+v", n.Name, r)
			}
		}
		if behind > 0 || len(leaders) != herdPools {
			return fmt.Errorf("%d are behind %d; %d pools have a leader; %s", behind, latest, len(leaders), example)
		}
		return nil
	})
}

// used has programs on each node read what the hub has a copy of, and what it keeps for them alone.
func (h *herd) used() {
	var g errgroup.Group
	g.SetLimit(16)
	for _, n := range h.nodes {
		g.Go(func() error {
			pods := "/api/v1/pods?fieldSelector=spec.nodeName%3D" + n
			for _, path := range []string{endpointSlices.path, "/api/v1/services", pods} {
				if _, err := h.listFrom(n, path); err != nil {
					return fmt.Errorf("%s: %w", n, err)
				}
			}
			return nil
		})
	}
	h.must(g.Wait())
}

// lists expects that each pool has asked the cloud for all of a resource at most so often.
func (h *herd) lists(when string, most int) {
	most *= herdPools
	for _, resource := range []string{"endpointslices", "endpoints", "services"} {
		n := 0
		for _, l := range h.listsBy(h.nodes, resource) {
			if l.At.After(h.since) {
				n++
			}
		}
		h.figure("lists_of_"+resource+"_"+when, float64(n))
		if n > most {
			h.fail("%s: all %s were listed over the WAN %d times, want at most %d", when, resource, n, most)
		}
	}
}
