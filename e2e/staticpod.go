package e2e

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var staticPodScenarios = []Scenario{{
	Name: "static-pod-hub", Lab: joining(pool.AsInstalled(), 0), run: staticPodHub,
	Doc: "a node is put behind a hub that its kubelet runs as a static Pod: it is Ready; killed, the hub is back; power-cycled " +
		"while nothing can be reached, hub and Pods come back from the disk; settings are changed; reset leaves nothing",
}}

// hubMemoryLimit is that of deploy/node/yurthub.yaml.
const hubMemoryLimit = 512 << 20

func staticPodHub(t *T) {
	name := t.follower(t.settledAway())
	want := t.deployNeedy(name)
	n := t.straightNode(name)
	before := n.still()

	t.say("join, as a static Pod")
	start := time.Now()
	join := fmt.Sprintf("sh %s/join --binary=%s --nodepool-name=p1 --static-pod=%s", n.dir, n.hub, lab.HubImage())
	t.say("%s", strings.TrimSpace(n.mustSh(join)))
	t.figure("static_pod_join_s", time.Since(start).Seconds())
	n.beats("kubelet goes through the hub")
	n.undisturbed("joined", before)
	n.hubPodReady()
	t.settled(30 * time.Second)
	n.hubIsContained()
	t.say("check says:\n%s", n.mustSh(n.hub+" check --joined"))

	n.killedHubIsBack()
	n.undisturbed("the hub was killed", before)
	n.offlinePowerCycle(want)

	before.containers = t.processes(name, "httpd -f")
	n.settingsChange(join)
	// The node may have been NotReady: a hub that is off for longer than kubelet's patience is like a dead link.
	before.readySince, _ = n.ready()
	n.reset(before)
	t.eventually(60*time.Second, "nothing of the Pod is left in the cloud or on the node", func() error {
		if p, err := n.hubPod(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the cloud has %v: %w", p.Status, err)
		}
		if left := n.machine("ls /var/log/pods | grep ^kube-system_yurthub || true; pgrep -x yurthub || true"); left != "" {
			return fmt.Errorf("the node has %s", left)
		}
		return nil
	})
	t.settledWithout(name)
}

// settledWithout waits until the pool's other hubs have a leader.
func (t *T) settledWithout(node string) {
	t.eventually(30*time.Second, "the other hubs have a leader", func() error {
		hubs := t.hubs()
		if _, there := hubs[node]; there || len(hubs) != t.cfg.Nodes-1 {
			return fmt.Errorf("hubs of %d nodes answer, that of %s among them: %v", len(hubs), node, there)
		}
		_, err := t.leader(hubs)
		return err
	})
}

// hubPod is what the cloud has of the static Pod.
func (n *installed) hubPod() (*corev1.Pod, error) {
	return n.cloud.CoreV1().Pods(edge.NamespaceSystem).Get(n.ctx, "yurthub-"+n.name, metav1.GetOptions{})
}

// hubPodReady waits until the cloud has the static Pod as Ready, and returns how often its container was restarted.
func (n *installed) hubPodReady() (restarts int32) {
	n.eventually(60*time.Second, "the cloud has the static Pod as Ready", func() error {
		p, err := n.hubPod()
		if err != nil {
			return err
		}
		if !podReady(p) || len(p.Status.ContainerStatuses) != 1 {
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
			n.fail("the hub has not %q:\n%s", line, status)
		}
	}
	var kb float64
	for line := range strings.Lines(status) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kb); err == nil {
			n.figure("static_pod_hub_rss_mb", kb/1024)
		}
	}
	if n.cfg.NoCgroups {
		return
	}
	limit := strings.TrimSpace(n.machine(`pid=$(pgrep -x yurthub)
for file in /sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/$pid/cgroup)/memory.limit_in_bytes \
	/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$pid/cgroup)/memory.max; do
	if [ -f $file ]; then cat $file; fi
done`))
	if limit != fmt.Sprint(hubMemoryLimit) {
		n.fail("the hub's memory is limited to %q, want %d", limit, hubMemoryLimit)
	}
}

// killedHubIsBack kills the hub: kubelet starts it again, which has no other way to the cloud.
func (n *installed) killedHubIsBack() {
	was := n.hubPodReady()
	n.say("killing the hub")
	killed := time.Now()
	n.machine("pkill -KILL -x yurthub")
	n.eventually(60*time.Second, "the hub is back", func() error {
		h, err := n.lab.Hub(n.ctx, n.name)
		if err == nil && (h.Cloud != "up" || h.Role == rolePending) {
			err = fmt.Errorf("it says %+v", h)
		}
		return err
	})
	n.figure("static_pod_kill_to_back_s", time.Since(killed).Seconds())
	n.eventually(60*time.Second, "the cloud knows of the restart", func() error {
		p, err := n.hubPod()
		if err == nil && (!podReady(p) || p.Status.ContainerStatuses[0].RestartCount <= was) {
			err = fmt.Errorf("its status: %+v", p.Status.ContainerStatuses)
		}
		return err
	})
	n.must(n.seen.neverNotReady(n.name, killed))
}

// offlinePowerCycle restarts the node, once with everything at hand, to compare, and once with nothing to be reached.
func (n *installed) offlinePowerCycle(want string) {
	n.hold(3*time.Second, "the hub's disk is written once a second")
	n.say("power-cycling %s with everything at hand, to compare", n.name)
	n.figure("static_pod_restart_online_s", n.powerCycle(n.name, want).Seconds())
	n.settled(60 * time.Second)
	n.hubPodReady()
	n.say("power-cycling %s, cut off from cloud and pool", n.name)
	n.must(n.lab.Cut(n.ctx, lab.WAN, n.name, wire.Drop))
	n.must(n.lab.Cut(n.ctx, lab.LAN, n.name, wire.Drop))
	n.hold(3*time.Second, "the hub's disk is written once a second")
	n.figure("static_pod_restart_offline_s", n.powerCycle(n.name, want).Seconds())
	again := n.processes(n.name, "httpd -f")
	n.must(n.lab.Heal(n.ctx, lab.LAN, n.name))
	n.must(n.lab.Heal(n.ctx, lab.WAN, n.name))
	n.settled(60 * time.Second)
	n.hubPodReady()
	n.beats("healed")
	if now := n.processes(n.name, "httpd -f"); !sameKeys(now, again) {
		n.fail("healing has restarted containers: %v, before %v", now, again)
	}
}

// settingsChange expects that other settings are another Pod's, and that those that don't work give way.
func (n *installed) settingsChange(join string) {
	hubs := func() map[string]bool { return n.processes(n.name, "--config=/etc/yurthub/config.yaml") }
	first := hubs()
	n.say("join, with another setting")
	start := time.Now()
	n.mustSh(join + " --set=cache-agents=kubelet,coredns")
	n.figure("static_pod_change_s", time.Since(start).Seconds())
	second := hubs()
	if len(second) != 1 || sameKeys(first, second) {
		n.fail("the hub after a change is %v, before %v", second, first)
	}
	n.say("join, with settings that yurthub refuses, and with some that don't work")
	files := n.files()
	for settings, want := range map[string]string{
		"no-such-setting=1": "refuses these settings",
		"port=10256":        "going back to the settings that worked", // kube-proxy has it
	} {
		said := n.mustSh(join + " --wait=5 --set=" + settings + " 2>&1 && echo joined || true")
		if !strings.Contains(said, want) {
			n.fail("it says:\n%s", said)
		}
		if now := n.files(); now != files {
			n.fail("not all is as before. Before:\n%s\nafter:\n%s", files, now)
		}
	}
	n.settled(60 * time.Second)
	n.mustSh(n.hub + " check --joined")
	n.beats("the settings that worked are back")
}
