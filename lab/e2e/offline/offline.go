package offline

import (
	"fmt"
	"strings"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var offlineScenarios = []kit.Scenario{
	{
		Name: "offline-restart", Tier: kit.Core, Lab: kit.OnePool, Run: offlineRestart,
		Doc: "With neither cloud nor pool in reach, the hub, kubelet and then the whole machine restart. The same Pods " +
			"run again, from the hub's disk alone.",
	},
	{
		Name: "offline-without-hub", Lab: kit.OnePool, Run: offlineWithoutHub,
		Doc: "The same power cut for a kubelet that finds no hub: its Pods do not come back before a hub does.",
	},
	{
		Name: "crash-anywhere", Lab: kit.HubsAlone, Run: crashAnywhere,
		Doc: "A hub is killed 200 times at random moments while everything changes. Its clients' watches stay exact, " +
			"nothing is listed over the WAN again, and what is on its disk is right.",
	},
	{
		Name: "disk-corrupt", Lab: kit.HubsAlone, Run: diskCorrupt,
		Doc: "Bits on the hub's disk are flipped while it is off and nothing can be reached. Every answer is right or is " +
			"a 503; once the link heals, the hub has everything again.",
	},
	{
		Name: "disk-full", Lab: kit.RealKubelets(kit.OnePool), Run: diskFull,
		Doc: "The hub's disk is full: it serves from memory and says so. A container that restarts during a cut still " +
			"gets its newest Secret. With space again, everything is on disk.",
	},
}

func offlineRestart(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	t.DeployWeb()
	want := t.Node(node).DeployNeedy()
	t.Hold(3*time.Second, "the hub's disk is written once a second")

	t.Say("restarting %s with everything at hand, to compare", node)
	online := t.Node(node).PowerCycle(want)
	t.Figure("restart_online_s", online.Seconds())
	t.Pool.Settled(30 * time.Second)
	t.Hold(5*time.Second, "kubelet writes the statuses of what has just started")
	podsAsInTheCloud(t, node)

	t.Say("cutting %s off from cloud and pool", node)
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	servers := t.Node(node).Servers()
	restartedAlone(t, node, servers)
	unknownIsRefused(t, node)

	t.Say("power-cycling %s", node)
	offline := t.Node(node).PowerCycle(want)
	t.Figure("restart_offline_s", offline.Seconds())
	t.Node(node).ServersBack(servers)
	t.Node(node).HealingKeeps(t.Node(node).Servers())
}

// podsPath returns the path at which a node's kubelet lists its Pods.
func podsPath(node string) string { return "/api/v1/pods?fieldSelector=spec.nodeName%3D" + node }

// podsAsInTheCloud waits until a node's hub has the node's Pods as the cloud has them.
func podsAsInTheCloud(t *kit.T, node string) {
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	t.Eventually(30*time.Second, "the hub has the node's Pods as the cloud has them", func() error {
		truth, err := t.List(access, podsPath(node), "application/json")
		t.Must(err)
		now, err := t.Node(node).List(podsPath(node))
		if err != nil {
			return err
		}
		delete(truth, "metadata") // the revision of the list
		delete(now, "metadata")
		return kit.Differs(truth, now)
	})
}

// listsAsBefore restarts a program of a node, and waits until the hub lists the node's Pods as before.
func listsAsBefore(t *kit.T, node string, before map[string]any, c lab.Component, within time.Duration) {
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, c))
	t.Eventually(within, fmt.Sprintf("with the %s restarted, the hub lists the node's Pods as before", c), func() error {
		now, err := t.Node(node).List(podsPath(node))
		if err != nil {
			return err
		}
		return kit.Differs(before, now)
	})
}

// restartedAlone restarts hub and kubelet of a node that is cut off: no container may restart because of that.
func restartedAlone(t *kit.T, node string, servers map[string]bool) {
	before, err := t.Node(node).List(podsPath(node))
	t.Must(err)
	for _, c := range []lab.Component{lab.Hub, lab.KubeletC} {
		t.Say("restarting the %s of %s", c, node)
		listsAsBefore(t, node, before, c, 20*time.Second)
		t.Hold(10*time.Second, "time for kubelet to do something wrong")
		if now := t.Node(node).Servers(); !kit.SameKeys(now, servers) {
			t.Fail("containers were restarted: %v, before %v", now, servers)
		}
	}
}

// withoutHub is how long a kubelet must do without a hub: many times as long as it needs with one.
const withoutHub = 90 * time.Second

func offlineWithoutHub(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	want := t.Node(node).DeployNeedy()
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	t.Say("power-cycling %s, with its hub where no kubelet looks for it", node)
	t.Must(t.Lab.HubSettings(node, "port: 10999\n"))
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.All))
	for deadline := time.Now().Add(withoutHub); time.Now().Before(deadline); t.Hold(5*time.Second, "no Pod runs") {
		if answer, err := t.Node(node).NeedyAnswers(); err == nil {
			t.Fail("the Pod %s answers %q: then this is no comparison", kit.NeedyName, answer)
		}
	}
	t.Must(t.Lab.HubSettings(node, ""))
	began := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.Hub))
	t.Eventually(120*time.Second, "with its hub, the Pod "+kit.NeedyName+" answers", func() error {
		answer, err := t.Node(node).NeedyAnswers()
		if err == nil && answer != want {
			err = fmt.Errorf("it answers %q, before %q", answer, want)
		}
		return err
	})
	t.Figure("hub_to_pod_s", time.Since(began).Seconds())
}

// unknownIsRefused expects the hub to say that it does not know what nobody has read before.
func unknownIsRefused(t *kit.T, node string) {
	for _, path := range []string{
		"/api/v1/namespaces/default/pods", "/apis/batch/v1/jobs", "/api/v1/namespaces/default/secrets/none",
	} {
		_, err := t.Node(node).List(path)
		if err == nil || !strings.Contains(err.Error(), "503") {
			t.Fail("GET %s, which the hub of %s cannot know: %v, want 503", path, node, err)
		}
	}
}
