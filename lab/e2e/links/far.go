package links

import (
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/line"
)

var farScenarios = []kit.Scenario{
	farPool("satellite", line.Shape{Delay: 350 * time.Millisecond, Jitter: 50 * time.Millisecond},
		"A round trip of 700 ms, give or take 100"),
	farPool("lossy", line.Shape{Delay: 20 * time.Millisecond, Loss: 0.05}, "5 % of the packets are lost in each direction"),
}

const (
	// inTime is how fast a silent cut is noticed on a good line. late is when a scenario fails on any line. It is longer
	// because the machine that runs the lab is slower than those that the promise is about.
	inTime = 8 * time.Second
	late   = 3 * inTime
)

// noticed waits until a node's hub calls its link, which was cut, down, and records and returns how long that took.
func noticed(t *kit.T, node string, cut time.Time) (took time.Duration) {
	t.Eventually(late, node+"'s hub reports the cloud down", func() error {
		hub, err := t.Lab.Hub(t.Ctx, node)
		if err == nil && hub.Cloud != "down" {
			err = fmt.Errorf("it says %s", hub.Cloud)
		}
		return err
	})
	took = time.Since(cut)
	t.Figure("cut_to_noticed_s", took.Seconds())
	return took
}

// farPool is a scenario of a pool on a bad line, from its start to a cut and its end.
func farPool(name string, shape line.Shape, what string) kit.Scenario {
	return kit.Scenario{
		Name: name, Lab: kit.Beside(lab.Config{Nodes: 3, Kubelet: lab.Hollow, NoProxy: true}, 1),
		Run: func(t *kit.T) { badLine(t, shape) },
		Doc: what + ". Hubs with empty disks start and lead; for two minutes no link is called down and heartbeats are on " +
			"time; a cut is noticed, delegated and healed. A node without a hub runs beside them.",
	}
}

func badLine(t *kit.T, shape line.Shape) {
	t.Pool.Settled(30 * time.Second)
	t.ShapeBoth(shape, false)
	startAnew(t)
	leader := t.Pool.SettledAway()

	on := t.WatchLines()
	t.Must(t.Lab.MarkTraffic(t.Ctx))
	t.Hold(2*time.Minute, "nothing but heartbeats")
	t.Carried("quiet_")
	on.NothingHappened("quiet_")

	node, plain := t.Pool.Follower(leader), t.Plain()[0]
	t.Say("cutting the WAN links of %s and of %s, which has no hub", node, plain)
	cut := t.Cut(node)
	t.Cut(plain)
	noticed(t, node, cut)
	t.Node(node).Delegated(cut)
	givenUp(t, plain, cut, "without_hub_cut_to_not_ready_s")
	t.Hold(time.Until(cut.Add(2*t.Config.Timing.Grace)), "two grace periods")
	t.Figure("cut_largest_heartbeat_age_s", t.Seen.LargestAge(node, cut, time.Now()).Seconds())
	t.NeverNotReady(cut, node)

	t.Say("healing both")
	healed := t.Heal(node)
	t.Heal(plain)
	t.Node(node).Direct(healed)
	t.Eventually(2*time.Minute, plain+" is Ready again", func() error {
		if n := t.Seen.Node(plain); n.Ready != corev1.ConditionTrue {
			return fmt.Errorf("Ready=%s", n.Ready)
		}
		return nil
	})
	ready, _ := t.Seen.FirstNode(plain, healed, func(n kit.NodeAt) bool { return n.Ready == corev1.ConditionTrue })
	t.Figure("without_hub_heal_to_ready_s", ready.Sub(healed).Seconds())
	t.Pool.Settled(30 * time.Second)
	t.NeverNotReady(cut, node)
}

// startAnew starts all hubs with empty disks, and all kubelets of both pools, at once. It records how long it takes until all
// links are up, and until the cloud has a heartbeat of each node.
func startAnew(t *kit.T) {
	t.Say("all hubs, with empty disks, and all kubelets start anew")
	for _, node := range t.Both() {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.KubeletC))
	}
	for _, node := range t.Pool.Nodes() {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Hub))
		kept, err := t.Lab.HubCache(node)
		t.Must(err)
		for _, file := range kept {
			t.Must(os.RemoveAll(file))
		}
	}
	began := time.Now()
	for _, node := range t.Pool.Nodes() {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Hub))
	}
	for _, node := range t.Both() {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.KubeletC))
	}
	t.Eventually(time.Minute, "all links are up", func() error {
		hubs := t.Pool.Hubs()
		if len(hubs) != t.Config.Nodes {
			return fmt.Errorf("%d hubs answer", len(hubs))
		}
		for node, h := range hubs {
			if h.Cloud != "up" {
				return fmt.Errorf("%s says %s", node, h.Cloud)
			}
		}
		return nil
	})
	t.Figure("start_to_up_s", time.Since(began).Seconds())
	first := map[string]time.Duration{}
	t.Eventually(time.Minute, "each node has sent a heartbeat", func() error {
		for _, node := range t.Both() {
			came := t.Seen.Renewals(node, began)
			if len(came) == 0 {
				return fmt.Errorf("%s has not", node)
			}
			first[node] = came[0].Sub(began)
		}
		return nil
	})
	t.Hold(20*time.Second, "kubelets that have just started say that they are not ready, and then that they are")
	for _, node := range t.Pool.Nodes() {
		t.Figure("start_to_heartbeat_s", first[node].Seconds())
	}
	for _, node := range t.Plain() {
		t.Figure("without_hub_start_to_heartbeat_s", first[node].Seconds())
	}
}

// givenUp waits until a node is called NotReady, and records how long it took.
func givenUp(t *kit.T, node string, since time.Time, figure string) {
	lost := func(n kit.NodeAt) bool { return n.Ready != corev1.ConditionTrue }
	t.Eventually(2*t.Config.Timing.Grace, node+" is NotReady", func() error {
		if _, ok := t.Seen.FirstNode(node, since, lost); !ok {
			return errors.New("it is Ready")
		}
		return nil
	})
	at, _ := t.Seen.FirstNode(node, since, lost)
	t.Figure(figure, at.Sub(since).Seconds())
}
