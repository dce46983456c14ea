package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var installedScenarios = []Scenario{{
	Name: "installed", Quick: true, Lab: pool.AsInstalled(), run: installedPool,
	Doc: "the chart, a NodePool and a YurtCoordinator are applied: a coordinator runs as a Pod, hubs find it, " +
		"a cut node's heartbeats are delegated, and operators use the generated kubeconfig",
}}

func installedPool(t *T) {
	node := t.coordinatorNode()
	before := t.coordinatorPod()
	if before.Spec.NodeName != node || !podReady(before) {
		t.fail("the Pod %s is on %q, and Ready: %v; the coordinator is to be on %s", before.Name, before.Spec.NodeName,
			podReady(before), node)
	}
	if running := t.coordinatorsRunning(); !slices.Equal(running, []string{node}) {
		t.fail("coordinators run on %v, want %s alone", running, node)
	}
	t.say("the Pod %s runs on %s", before.Name, node)
	t.operates(node, t.nodeNames())

	cutOff := t.follower(t.settledAway())
	t.say("cutting the WAN link of %s, silently", cutOff)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, cutOff, wire.Drop))
	t.delegated(cutOff, cut)
	t.eventually(20*time.Second, "the YurtCoordinator says so", func() error { return t.saysDelegated(cutOff) })
	t.pluginSays(node, cutOff, "Delegated", "CloudLinkDown")
	t.hold(time.Until(cut.Add(2*t.cfg.Timing.Grace)), "two grace periods")
	t.must(t.seen.neverNotReady(cutOff, cut))
	t.operates(node, t.nodeNames())
	healed := time.Now()
	t.must(t.lab.Heal(t.ctx, lab.WAN, cutOff))
	t.direct(cutOff, healed)
	t.eventually(20*time.Second, "the YurtCoordinator says so", func() error { return t.saysDelegated() })
	t.pluginSays(node, cutOff, "Connected", "CloudLinkRestored")

	t.say("cutting the LAN link of %s", cutOff)
	t.must(t.lab.Cut(t.ctx, lab.LAN, cutOff, wire.Drop))
	took := t.eventually(40*time.Second, "the leader has told the cloud that it is outside", func() error {
		return t.saysOutside(cutOff)
	})
	t.figure("lan_cut_to_outside_s", took.Seconds())
	t.must(t.lab.Heal(t.ctx, lab.LAN, cutOff))
	t.eventually(40*time.Second, "the leader has told the cloud that all are inside", func() error { return t.saysOutside() })

	t.say("killing the coordinator, which kubelet starts again")
	killed := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.Coordinator))
	t.must(t.lab.Node(t.ctx, lab.Start, node, lab.Coordinator))
	t.figure("kill_to_running_s", time.Since(killed).Seconds())
	t.eventually(30*time.Second, "the same Pod is Ready again", func() error {
		now := t.coordinatorPod()
		if now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount == 0 || !podReady(now) {
			return fmt.Errorf("the Pod %s: %+v", now.Name, now.Status.ContainerStatuses)
		}
		return nil
	})
	t.settled(30 * time.Second)
	t.figure("kill_to_all_well_s", time.Since(killed).Seconds())
	t.operates(node, t.nodeNames())
	for _, name := range t.nodeNames() {
		t.must(t.seen.neverNotReady(name, cut))
	}
}

// coordinatorPod is the Pod of the first pool's coordinator; the lab has no other.
func (t *T) coordinatorPod() *corev1.Pod {
	pods, err := t.cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.ctx,
		metav1.ListOptions{LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator})
	t.must(err)
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		t.fail("%d Pods of coordinators, want 1 with one container", len(pods.Items))
	}
	return &pods.Items[0]
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// coordinatorsRunning are the nodes that have a coordinator's process.
func (t *T) coordinatorsRunning() []string {
	s, err := t.lab.Status(t.ctx)
	t.must(err)
	var nodes []string
	for _, n := range s.Nodes {
		for _, p := range n.Processes {
			if p.Name == string(lab.Coordinator) {
				nodes = append(nodes, n.Name)
			}
		}
	}
	return nodes
}

// saysDelegated returns an error unless these are the delegated nodes in the status of the first pool's YurtCoordinator.
func (t *T) saysDelegated(want ...string) error {
	c, err := t.yurtCoordinator("p1")
	if err == nil && !slices.Equal(c.Status.DelegatedNodes, want) {
		err = fmt.Errorf("its delegatedNodes are %v, want %v", c.Status.DelegatedNodes, want)
	}
	return err
}

// saysOutside is saysDelegated for the nodes that do not reach the coordinator.
func (t *T) saysOutside(want ...string) error {
	c, err := t.yurtCoordinator("p1")
	if err == nil && !slices.Equal(c.Status.OutsidePoolNodes, want) {
		err = fmt.Errorf("its outsidePoolNodes are %v, want %v", c.Status.OutsidePoolNodes, want)
	}
	return err
}

// operates is what somebody on site does with the generated kubeconfig, as it is: kubectl shows the heartbeats of all
// living nodes at the coordinator on node, from the pool's LAN and from a node of the pool.
func (t *T) operates(node string, alive []string) {
	o, err := t.cloud.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
	t.must(err)
	var want string
	for _, a := range o.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			want = fmt.Sprintf("https://%s:%d", a.Address, edge.PortCoordinator)
		}
	}
	access, err := t.lab.CoordinatorConfig(1, lab.Operator)
	t.must(err)
	if access.Host != want {
		t.fail("the kubeconfig leads to %s, want %s", access.Host, want)
	}
	onSite, err := t.lab.Kubectl(t.ctx, "coordinator/p1",
		[]string{"get", "leases", "-n", corev1.NamespaceNodeLease, "-o", "json"})
	t.must(err)
	// The same command line as on site: all from kubectl on.
	i := slices.IndexFunc(onSite.Args, func(a string) bool { return strings.HasSuffix(a, "/kubectl") })
	if i < 0 {
		t.fail("no kubectl in %v", onSite.Args)
	}
	other := alive[slices.IndexFunc(alive, func(n string) bool { return n != node })]
	onNode, err := t.lab.Inside(t.ctx, other, onSite.Args[i:]...)
	t.must(err)
	for _, kubectl := range []*exec.Cmd{onSite, onNode} {
		t.eventually(20*time.Second, "kubectl shows the pool's heartbeats at "+want, func() error {
			again := exec.CommandContext(t.ctx, kubectl.Path, kubectl.Args[1:]...)
			again.Env = onSite.Env
			return showsLeases(again, alive)
		})
	}
}

// showsLeases runs a kubectl that prints Leases as JSON, and returns an error unless these are among them.
func showsLeases(kubectl *exec.Cmd, names []string) error {
	out, err := kubectl.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return err
	}
	var list struct {
		Items []metav1.PartialObjectMetadata `json:"items"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return fmt.Errorf("kubectl prints no list: %w", err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.Name == name }) {
			return fmt.Errorf("no Lease of %s among %d", name, len(list.Items))
		}
	}
	return nil
}
