package links

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var flappingScenarios = []kit.Scenario{{
	Name: "flapping-line", Run: flappingLine,
	Lab: kit.Beside(lab.Config{Nodes: 3, Kubelet: lab.Hollow, NoProxy: true}, 1),
	Doc: "Links work for 20 s and are silent for 20 s, for ten minutes: first one node's, then the whole pool's. No " +
		"living node is called NotReady, no hub lists anything again, and no hub grows in memory, files or goroutines.",
}}

const (
	flapEvery  = 20 * time.Second
	flapsEach  = 7 // twice 7 times 40 s are some 10 minutes
	flapSettle = 90 * time.Second
)

// hubSize is what a hub's process holds.
type hubSize struct{ goroutines, files, memory float64 }

func sizeOf(t *kit.T, node string) hubSize {
	n := t.Node(node)
	return hubSize{n.Metric("go_goroutines"), n.Metric("process_open_fds"), n.Memory(kit.ProgramHub).Anonymous}
}

// largest returns the most that hubs hold, by their role: a leader has more to do than others.
func largest(t *kit.T, nodes []string) map[string]hubSize {
	hubs, most := t.Pool.Hubs(), map[string]hubSize{}
	for _, node := range nodes {
		is, of := sizeOf(t, node), most[hubs[node].Role]
		most[hubs[node].Role] = hubSize{
			max(is.goroutines, of.goroutines), max(is.files, of.files), max(is.memory, of.memory),
		}
	}
	return most
}

func flappingLine(t *kit.T) {
	leader := t.Pool.SettledAway()
	t.Pool.Shared(60*time.Second, kit.EndpointSlices.Name)
	t.Hold(flapSettle, "hubs and kubelets have settled")
	nodes, plain := t.Pool.Nodes(), t.Plain()[0]
	before := largest(t, nodes)
	began := time.Now()
	node := t.Pool.Follower(leader)
	flap(t, "one_", node, node, plain)
	t.Pool.Settled(flapSettle)
	flap(t, "all_", "pool/p1", "", plain)
	t.Pool.Settled(flapSettle)
	t.Hold(flapSettle, "hubs settle again")

	again := listedAgain(readsOf(t, nodes), began)
	t.Figure("lists_again", float64(len(again)))
	for _, l := range again {
		t.Say("listed again: %s by %s", l.URI, l.User)
	}
	for role, is := range largest(t, nodes) {
		was := before[role]
		t.Say("%s: %.0f goroutines, %.0f files, %.1f MB; before %.0f, %.0f, %.1f", role, is.goroutines, is.files, is.memory/1e6,
			was.goroutines, was.files, was.memory/1e6)
		t.Figure("goroutines_ratio", is.goroutines/was.goroutines)
		t.Figure("files_ratio", is.files/was.files)
		t.Figure("memory_ratio", is.memory/was.memory)
		// A leak of one in each of 14 turns is more than these; a garbage collection more or less is not.
		if is.goroutines > was.goroutines+10 || is.files > was.files+10 || is.memory > 1.5*was.memory {
			t.Fail("a %s has %+v, before it had %+v", role, is, was)
		}
	}
	if len(again) > 0 {
		t.Fail("%d lists were sent again, though the cloud has its history", len(again))
	}
}

// flap cuts the links of target, and of the node plain, which has no hub, again and again. cut names the only node of the pool
// whose link is cut; empty means that all of the pool's are.
func flap(t *kit.T, prefix, target, cut, plain string) {
	on := t.WatchLines()
	t.Must(t.Lab.MarkTraffic(t.Ctx))
	asked := t.Cloud.Metric("apiserver_request_total")
	began := time.Now()
	for i := range flapsEach {
		t.Say("%s and %s, turn %d of %d: silent", target, plain, i+1, flapsEach)
		for _, link := range []string{target, plain} {
			t.Cut(link)
		}
		t.Pause(flapEvery, "silent")
		for _, link := range []string{target, plain} {
			t.Heal(link)
		}
		t.Pause(flapEvery, "whole")
	}
	took := time.Since(began).Seconds()
	hubs, _ := on.Figures(prefix)
	withHub, without := t.Carried(prefix)
	t.Figure(prefix+"bytes_ratio", withHub/without)
	t.Figure(prefix+"requests_at_the_cloud_per_s", (t.Cloud.Metric("apiserver_request_total")-asked)/took)
	lost := func(n kit.NodeAt) bool { return n.Ready != corev1.ConditionTrue }
	if at, ok := t.Seen.FirstNode(plain, began, lost); ok {
		t.Say("%s, without a hub, was called NotReady after %.0f s", plain, at.Sub(began).Seconds())
	}
	if len(hubs.NotReady) > 0 {
		t.Fail("%v, alive, were called NotReady", hubs.NotReady)
	}
	for _, node := range hubs.Delegated {
		if cut != "" && node != cut {
			t.Fail("%s, whose link is whole, was delegated", node)
		}
	}
}

// readsOf returns these nodes' reads of all of a resource that hubs share or keep.
func readsOf(t *kit.T, nodes []string) (all []lab.FullRead) {
	for _, resource := range []string{"endpointslices", "services", "endpoints", "namespaces", "nodepools"} {
		all = append(all, t.Cloud.ListsBy(nodes, resource)...)
	}
	return all
}

// listedAgain returns the reads after since that repeat an earlier read of the same node. It is the first read that does not
// count: a hub reads its NodePool, one object, when it leads for the first time, and that may only be now.
func listedAgain(reads []lab.FullRead, since time.Time) (again []lab.FullRead) {
	reads = slices.SortedStableFunc(slices.Values(reads), func(a, b lab.FullRead) int { return a.At.Compare(b.At) })
	had := map[string]bool{}
	for _, l := range reads {
		what := kit.Selection(l)
		if had[what] && l.At.After(since) {
			again = append(again, l)
		}
		had[what] = true
	}
	return again
}
