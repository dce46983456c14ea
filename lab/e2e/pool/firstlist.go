package pool

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/line"
)

var firstListScenarios = []kit.Scenario{{
	Name: "thin-first-list", Run: thinFirstList,
	Lab: lab.Config{Pools: 1, Nodes: 1, Timing: lab.Stock, Kubelet: lab.Real, NoCoordinator: true},
	Doc: "128 kbit/s, and 20,000 EndpointSlices in the cloud: a hub starts with an empty disk. A Pod that is bound to its node " +
		"runs within 30 s, long before the list of EndpointSlices is complete, and heartbeats are on time meanwhile.",
}}

const (
	firstListSlices = 20_000
	// firstListPod is how long the Pod may take, and firstListFill is how long the list may.
	firstListPod, firstListFill = 30 * time.Second, 15 * time.Minute
)

func thinFirstList(t *kit.T) {
	node := t.Pool.Nodes()[0]
	t.Eventually(60*time.Second, "the node is ready", t.Pool.NodesReady)
	programs := []lab.Component{lab.Hub, lab.KubeletC, lab.KubeProxy}
	for _, c := range programs {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, c))
	}
	makeSlices(t, firstListSlices)
	forget(t, node)
	t.Shape(lab.WAN, node, line.Shape{Rate: thin.Rate, Queue: thin.Queue}, 1, false)

	began := time.Now()
	for _, c := range programs {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, c))
	}
	access, err := t.Lab.HubConfig(node)
	t.Must(err)
	stop := beating(t, node, access)
	bound := time.Now()
	t.Node(node).DeployNeedy()
	took := time.Since(bound)
	starting := stop()
	stop = beating(t, node, access)
	t.Figure("bound_to_running_s", took.Seconds())
	if r, _ := t.Pool.Hubs()[node].Replica(kit.EndpointSlices.Name); r.Objects >= firstListSlices {
		t.Fail("the list was complete before: this shows nothing")
	}
	t.Eventually(firstListFill, "the hub has all EndpointSlices", func() error {
		r, ok := t.Pool.Hubs()[node].Replica(kit.EndpointSlices.Name)
		if !ok || r.Source != "cloud" || r.Objects < firstListSlices {
			return fmt.Errorf("it has %+v", r)
		}
		return nil
	})
	t.Figure("list_complete_s", time.Since(began).Seconds())
	filling, end := stop(), time.Now()
	t.Figure("longest_beat_while_kubelet_starts_s", starting.longest.Seconds())
	t.Figure("longest_beat_s", filling.longest.Seconds())
	renewals := t.Seen.Renewals(node, began)
	if len(renewals) == 0 {
		t.Fail("the Lease of %s was never renewed", node)
	}
	t.Figure("start_to_first_heartbeat_s", renewals[0].Sub(began).Seconds())
	oldest := t.Seen.LargestAge(node, renewals[0], end)
	t.Figure("largest_lease_age_s", oldest.Seconds())

	if took > firstListPod {
		t.Fail("the Pod ran %v after it was bound, want at most %v", took, firstListPod)
	}
	// How long each heartbeat took is a figure here: `thin-line` has the budget.
	for _, b := range []beats{starting, filling} {
		if b.lost > 0 || b.count == 0 {
			t.Fail("of %d heartbeats %d failed: %v", b.count, b.lost, b.err)
		}
	}
	if most := t.Config.Timing.Grace / 2; oldest > most {
		t.Fail("a Lease was not renewed in the cloud for %v, want at most %v", oldest, most)
	}
	if n := readBy(t, "", began, kit.EndpointSlices.Resource); n != 1 {
		t.Fail("the node has read all EndpointSlices over the WAN %d times, want once", n)
	}
}

// makeSlices makes EndpointSlices of one endpoint each, of Services that do not exist. No controller touches them.
func makeSlices(t *kit.T, n int) {
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		name := fmt.Sprintf("small-%d", i)
		all.Go(func() error {
			_, err := t.Cloud.DiscoveryV1().EndpointSlices(kit.Namespace).Create(t.Ctx, &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.200.%d.%d", i/250, 1+i%250)}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	t.Must(all.Wait())
	t.Say("there are %d EndpointSlices", n)
}
