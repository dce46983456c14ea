package install

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var staticPodScenarios = []kit.Scenario{{
	Name: "static-pod-hub", Lab: kit.Joining(kit.OnePool.AsInstalled(), 0), Run: staticPodHub,
	Doc: "Kubelet runs the hub as a static Pod. The node is Ready; a killed hub is back; after a power cut with nothing " +
		"in reach, hub and Pods come back from the disk; settings change; a reset leaves nothing.",
}}

// hubMemoryLimit is the limit in deploy/node/yurthub.yaml.
const hubMemoryLimit = 512 << 20

func staticPodHub(t *kit.T) {
	name := t.Pool.Follower(t.Pool.SettledAway())
	want := t.Node(name).DeployNeedy()
	n := straightNode(t, name)
	before := n.still()

	t.Say("join, as a static Pod")
	start := time.Now()
	join := n.joinCommand("--static-pod=" + lab.HubImage())
	t.Say("%s", strings.TrimSpace(n.mustSh(join)))
	t.Figure("static_pod_join_s", time.Since(start).Seconds())
	n.beats("kubelet goes through the hub")
	n.adopt()
	n.undisturbed("joined", before)
	n.hubPodReady()
	t.Pool.Settled(30 * time.Second)
	n.hubIsContained()
	t.Say("check says:\n%s", n.mustSh(n.hub+" check --joined"))

	n.killedHubIsBack()
	n.undisturbed("the hub was killed", before)
	n.offlinePowerCycle(want)

	before.containers = t.Node(name).Processes("httpd -f")
	n.settingsChange(join)
	// The node may have been NotReady: to be without a hub for longer than kubelet's patience is like a dead link.
	before.at = time.Now()
	n.reset(before)
	t.Eventually(60*time.Second, "nothing of the Pod is left in the cloud or on the node", func() error {
		if p, err := n.hubPod(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the cloud has %v: %w", p.Status, err)
		}
		if left := n.machine("ls /var/log/pods | grep ^kube-system_yurthub || true; pgrep -x yurthub || true"); left != "" {
			return fmt.Errorf("the node has %s", left)
		}
		return nil
	})
	settledWithout(t, name)
}

// settledWithout waits until the pool's other hubs have a leader.
func settledWithout(t *kit.T, node string) {
	t.Eventually(30*time.Second, "the other hubs have a leader", func() error {
		hubs := t.Pool.Hubs()
		if _, there := hubs[node]; there || len(hubs) != t.Config.Nodes-1 {
			return fmt.Errorf("hubs of %d nodes answer, that of %s among them: %v", len(hubs), node, there)
		}
		_, err := t.Pool.Leader(hubs)
		return err
	})
}

// hubPod returns the static Pod as the cloud has it.
func (n *installed) hubPod() (*corev1.Pod, error) {
	return n.Cloud.CoreV1().Pods(edge.NamespaceSystem).Get(n.Ctx, "yurthub-"+n.name, metav1.GetOptions{})
}

// hubPodReady waits until the cloud shows the static Pod Ready, and returns how often its container restarted.
func (n *installed) hubPodReady() (restarts int32) {
	n.Eventually(60*time.Second, "the cloud has the static Pod as Ready", func() error {
		p, err := n.hubPod()
		if err != nil {
			return err
		}
		if !kit.PodReady(p) || len(p.Status.ContainerStatuses) != 1 {
			return fmt.Errorf("its status: %+v", p.Status)
		}
		restarts = p.Status.ContainerStatuses[0].RestartCount
		return nil
	})
	return restarts
}

// hubIsContained expects that the hub has no more of the node than its Pod says.
func (n *installed) hubIsContained() {
	status := n.machine(`cat /proc/$(pgrep -x yurthub)/status`)
	for _, line := range []string{"CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			n.Fail("the hub has not %q:\n%s", line, status)
		}
	}
	var kb float64
	for line := range strings.Lines(status) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			n.Figure("static_pod_hub_rss_mb", kb/1024)
		}
	}
	if n.Config.NoCgroups {
		return
	}
	limit := strings.TrimSpace(n.machine(`pid=$(pgrep -x yurthub)
for file in /sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/$pid/cgroup)/memory.limit_in_bytes \
	/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup)/memory.max; do
	if [ -f $file ]; then cat $file; fi
done`))
	if limit != fmt.Sprint(hubMemoryLimit) {
		n.Fail("the hub's memory is limited to %q, want %d", limit, hubMemoryLimit)
	}
}

// killedHubIsBack kills the hub. kubelet, which has no other way to the cloud, starts it again.
func (n *installed) killedHubIsBack() {
	was := n.hubPodReady()
	n.Say("killing the hub")
	killed := time.Now()
	n.machine("pkill -KILL -x yurthub")
	n.Eventually(60*time.Second, "the hub is back", func() error {
		h, err := n.Lab.Hub(n.Ctx, n.name)
		if err == nil && (h.Cloud != "up" || h.Role == kit.RolePending) {
			err = fmt.Errorf("it says %+v", h)
		}
		return err
	})
	n.Figure("static_pod_kill_to_back_s", time.Since(killed).Seconds())
	n.Eventually(60*time.Second, "the cloud knows of the restart", func() error {
		p, err := n.hubPod()
		if err == nil && (!kit.PodReady(p) || p.Status.ContainerStatuses[0].RestartCount <= was) {
			err = fmt.Errorf("its status: %+v", p.Status.ContainerStatuses)
		}
		return err
	})
	n.Must(n.Seen.NeverNotReady(n.name, killed))
}

// offlinePowerCycle restarts the node twice: once with everything reachable, to compare, and once with nothing
// reachable.
func (n *installed) offlinePowerCycle(want string) {
	n.Hold(3*time.Second, "the hub's disk is written once a second")
	n.Say("power-cycling %s with everything at hand, to compare", n.name)
	n.Figure("static_pod_restart_online_s", n.Node(n.name).PowerCycle(want).Seconds())
	n.Pool.Settled(60 * time.Second)
	n.hubPodReady()
	n.Say("power-cycling %s, cut off from cloud and pool", n.name)
	n.Must(n.Lab.Cut(n.Ctx, lab.WAN, n.name, wire.Drop))
	n.Must(n.Lab.Cut(n.Ctx, lab.LAN, n.name, wire.Drop))
	n.Hold(3*time.Second, "the hub's disk is written once a second")
	n.Figure("static_pod_restart_offline_s", n.Node(n.name).PowerCycle(want).Seconds())
	again := n.Node(n.name).Processes("httpd -f")
	n.Must(n.Lab.Heal(n.Ctx, lab.LAN, n.name))
	n.Must(n.Lab.Heal(n.Ctx, lab.WAN, n.name))
	n.Pool.Settled(60 * time.Second)
	n.hubPodReady()
	n.beats("healed")
	if now := n.Node(n.name).Processes("httpd -f"); !kit.SameKeys(now, again) {
		n.Fail("healing has restarted containers: %v, before %v", now, again)
	}
}

// settingsChange expects that new settings make a new Pod, and that settings that don't work are rolled back.
func (n *installed) settingsChange(join string) {
	hubs := func() map[string]bool { return n.Node(n.name).Processes("--config=/etc/yurthub/config.yaml") }
	first := hubs()
	n.Say("join, with another setting")
	start := time.Now()
	n.mustSh(join + " --set=cache-agents=kubelet,coredns")
	n.Figure("static_pod_change_s", time.Since(start).Seconds())
	second := hubs()
	if len(second) != 1 || kit.SameKeys(first, second) {
		n.Fail("the hub after a change is %v, before %v", second, first)
	}
	n.Say("join, with settings that yurthub refuses, and with some that don't work")
	files := n.files()
	for settings, want := range map[string]string{
		"no-such-setting=1": "refuses these settings",
		"port=10256":        "going back to the settings that worked", // kube-proxy uses it
	} {
		said := n.mustSh(join + " --wait=5 --set=" + settings + " 2>&1 && echo joined || true")
		if !strings.Contains(said, want) {
			n.Fail("it says:\n%s", said)
		}
		if now := n.files(); now != files {
			n.Fail("not all is as before. Before:\n%s\nafter:\n%s", files, now)
		}
	}
	n.Pool.Settled(60 * time.Second)
	n.mustSh(n.hub + " check --joined")
	n.beats("the settings that worked are back")
}
