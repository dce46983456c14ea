package pool

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
)

var herdScenarios = []kit.Scenario{
	{
		Name: "thundering-herd",
		Lab: lab.Config{
			Pools: herdPools, Nodes: 200 / herdPools, Timing: lab.Quick, Kubelet: lab.Hollow, NoKubelet: true, NoProxy: true,
		},
		Run: thunderingHerd,
		Doc: "200 hubs lose the cloud and regain it at the same moment: by their links, by a restart of the cloud, by a " +
			"restart of their own. Nobody lists anything again, or once per pool where the cloud has forgotten its " +
			"history.",
	},
}

// herdPools is how many pools the 200 hubs are in.
const herdPools = 5

// herd are the hubs of all pools.
type herd struct {
	*kit.T
	nodes []string
	// since is when the last fault was over.
	since time.Time
}

func thunderingHerd(t *kit.T) {
	_, err := load.Services(t.Ctx, t.Cloud, herdLoad(t))
	t.Must(err)
	h := &herd{T: t}
	status, err := t.Lab.Status(t.Ctx)
	t.Must(err)
	for _, n := range status.Nodes {
		h.nodes = append(h.nodes, n.Name)
	}
	h.current(3*time.Minute, "after the boot")
	h.used()
	h.lists("at_boot", 1)

	h.fault("links", func(during func()) {
		for p := 1; p <= herdPools; p++ {
			t.Cut(fmt.Sprintf("pool/p%d", p))
		}
		t.Hold(15*time.Second, "all hubs have lost the cloud")
		during()
		for p := 1; p <= herdPools; p++ {
			t.Heal(fmt.Sprintf("pool/p%d", p))
		}
	}, 0)
	h.fault("hubs", func(during func()) {
		h.all(lab.Kill)
		during()
		h.all(lab.Start)
	}, 0)
	// A kube-apiserver that has just started answers 410 to every client that is behind the latest write of any kind.
	// Then each leader lists, and so does a follower here and there that has not heard from its leader for too long:
	// all of them share this machine.
	h.fault("cloud", func(func()) {
		t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer))
	}, 4)
}

func herdLoad(t *kit.T) load.Spec {
	return load.Spec{Services: 200, EndpointsEach: 20, Nodes: t.Pool.Nodes()}
}

// fault breaks something for all hubs at once, and changes the load meanwhile. It expects that each pool lists no resource more
// than most times.
func (h *herd) fault(name string, do func(during func()), most int) {
	h.Say("fault: %s", name)
	h.since = time.Now()
	h.Must(h.Lab.MarkTraffic(h.Ctx))
	do(func() {
		changes := h.Churn(herdLoad(h.T), 50)
		h.Hold(5*time.Second, "the load changes")
		h.Say("%d changes", h.End(changes))
	})
	healed := time.Now()
	h.current(2*time.Minute, "after "+name)
	h.Figure("current_after_"+name+"_s", time.Since(healed).Seconds())
	traffic, err := h.Lab.Traffic(h.Ctx, true)
	h.Must(err)
	sum := lab.Total(traffic)
	h.Figure("wan_bytes_after_"+name, float64(sum.Up+sum.Down))
	h.Hold(10*time.Second, "those that come late")
	h.lists("after_"+name, most)
}

// all does the same to all hubs, as many at a time as one operator would with a switch.
func (h *herd) all(a lab.Action) {
	var g errgroup.Group
	g.SetLimit(32)
	for _, n := range h.nodes {
		g.Go(func() error { return h.Lab.Node(h.Ctx, a, n, lab.Hub) })
	}
	h.Must(g.Wait())
}

// current waits until every hub has the latest EndpointSlices, and each pool has one leader. It pauses four times as long as it
// asks: to ask 200 hubs without a pause takes as much processor time as all else here together.
func (h *herd) current(within time.Duration, when string) {
	latest := edge.Revision(0)
	list, err := h.Cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(h.Ctx, metav1.ListOptions{})
	h.Must(err)
	for _, s := range list.Items {
		r, err := edge.ParseRevision(s.ResourceVersion)
		h.Must(err)
		latest = max(latest, r)
	}
	took := time.Duration(0)
	h.Eventually(within, fmt.Sprintf("all %d hubs have all EndpointSlices %s", len(h.nodes), when), func() error {
		time.Sleep(4 * took)
		began := time.Now()
		status, err := h.Lab.Status(h.Ctx)
		if took = time.Since(began); err != nil {
			return err
		}
		behind, leaders, example := 0, map[string]int{}, ""
		for _, n := range status.Nodes {
			var r lab.ReplicaStatus
			if n.Hub != nil {
				r, _ = n.Hub.Replica(kit.EndpointSlices.Name)
				if n.Hub.Role == kit.RoleLeader {
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

// used runs programs on each node that read what the hub has a copy of, and what it keeps for them alone.
func (h *herd) used() {
	var g errgroup.Group
	g.SetLimit(16)
	for _, n := range h.nodes {
		g.Go(func() error {
			pods := "/api/v1/pods?fieldSelector=spec.nodeName%3D" + n
			for _, path := range []string{kit.EndpointSlices.Path, "/api/v1/services", pods} {
				if _, err := h.Node(n).List(path); err != nil {
					return fmt.Errorf("%s: %w", n, err)
				}
			}
			return nil
		})
	}
	h.Must(g.Wait())
}

// lists expects that each pool has asked the cloud for all of a resource no more than most times.
func (h *herd) lists(when string, most int) {
	most *= herdPools
	for _, resource := range []string{"endpointslices", "endpoints", "services"} {
		n := 0
		for _, l := range h.Cloud.ListsBy(h.nodes, resource) {
			if l.At.After(h.since) {
				n++
			}
		}
		h.Figure("lists_of_"+resource+"_"+when, float64(n))
		if n > most {
			h.Fail("%s: all %s were listed over the WAN %d times, want at most %d", when, resource, n, most)
		}
	}
}
