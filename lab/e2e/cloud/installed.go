package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var installedScenarios = []kit.Scenario{{
	Name: "installed", Tier: kit.Core, Lab: kit.OnePool.AsInstalled(), Run: installedPool,
	Doc: "The chart, a NodePool and a YurtCoordinator are applied. A coordinator runs as a Pod from our image, hubs find " +
		"it, a node that is cut off is delegated, and operators use the generated kubeconfig.",
}}

func installedPool(t *kit.T) {
	node := t.Pool.CoordinatorNode()
	before := t.Pool.CoordinatorPod()
	if before.Spec.NodeName != node || !kit.PodReady(before) {
		t.Fail("the Pod %s is on %q, and Ready: %v; the coordinator is to be on %s", before.Name, before.Spec.NodeName,
			kit.PodReady(before), node)
	}
	if running := t.Pool.CoordinatorsRunning(); !slices.Equal(running, []string{node}) {
		t.Fail("coordinators run on %v, want %s alone", running, node)
	}
	t.Say("the Pod %s runs on %s", before.Name, node)
	operates(t, node, t.Pool.Nodes())

	cutOff := t.Pool.Follower(t.Pool.SettledAway())
	t.Say("cutting the WAN link of %s, silently", cutOff)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	t.Eventually(20*time.Second, "the YurtCoordinator says so", func() error { return saysDelegated(t, cutOff) })
	pluginSays(t, node, cutOff, "Delegated", "CloudLinkDown")
	t.Hold(time.Until(cut.Add(2*t.Config.Timing.Grace)), "two grace periods")
	t.NeverNotReady(cut, cutOff)
	operates(t, node, t.Pool.Nodes())
	healed := t.Heal(cutOff)
	t.Node(cutOff).Direct(healed)
	t.Eventually(20*time.Second, "the YurtCoordinator says so", func() error { return saysDelegated(t) })
	pluginSays(t, node, cutOff, "Connected", "CloudLinkRestored")

	t.Say("cutting the LAN link of %s", cutOff)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, cutOff, wire.Drop))
	took := t.Eventually(40*time.Second, "the leader has told the cloud that it is outside", func() error {
		return saysOutside(t, cutOff)
	})
	t.Figure("lan_cut_to_outside_s", took.Seconds())
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, cutOff))
	t.Eventually(40*time.Second, "the leader has told the cloud that all are inside", func() error { return saysOutside(t) })

	t.Say("killing the coordinator, which kubelet starts again")
	killed := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Coordinator))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Coordinator))
	t.Figure("kill_to_running_s", time.Since(killed).Seconds())
	t.Eventually(30*time.Second, "the same Pod is Ready again", func() error {
		now := t.Pool.CoordinatorPod()
		if now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount == 0 || !kit.PodReady(now) {
			return fmt.Errorf("the Pod %s: %+v", now.Name, now.Status.ContainerStatuses)
		}
		return nil
	})
	t.Pool.Settled(30 * time.Second)
	t.Figure("kill_to_all_well_s", time.Since(killed).Seconds())
	operates(t, node, t.Pool.Nodes())
	trafficIsTold(t, "cloud")
	t.NeverNotReady(cut, t.Pool.Nodes()...)
}

// saysDelegated fails unless these are the delegated nodes in the status of the first pool's YurtCoordinator.
func saysDelegated(t *kit.T, want ...string) error {
	c, err := t.Cloud.YurtCoordinator("p1")
	if err == nil && !slices.Equal(c.Status.DelegatedNodes, want) {
		err = fmt.Errorf("its delegatedNodes are %v, want %v", c.Status.DelegatedNodes, want)
	}
	return err
}

// saysOutside is saysDelegated for the nodes that do not reach the coordinator.
func saysOutside(t *kit.T, want ...string) error {
	c, err := t.Cloud.YurtCoordinator("p1")
	if err == nil && !slices.Equal(c.Status.OutsidePoolNodes, want) {
		err = fmt.Errorf("its outsidePoolNodes are %v, want %v", c.Status.OutsidePoolNodes, want)
	}
	return err
}

// operates does what a person on site does with the generated kubeconfig, unchanged. kubectl shows the heartbeats of all living
// nodes at the coordinator on the node, from the pool's LAN and from another node of the pool.
func operates(t *kit.T, node string, alive []string) {
	o, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
	t.Must(err)
	var want string
	for _, a := range o.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && want == "" {
			want = "https://" + net.JoinHostPort(a.Address, strconv.Itoa(edge.PortCoordinator))
		}
	}
	access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	if access.Host != want {
		t.Fail("the kubeconfig leads to %s, want %s", access.Host, want)
	}
	onSite, err := t.Lab.Kubectl(t.Ctx, "coordinator/p1",
		[]string{"get", "leases", "-n", corev1.NamespaceNodeLease, "-o", "json"})
	t.Must(err)
	// The same command line as on site: everything after kubectl.
	i := slices.IndexFunc(onSite.Args, func(a string) bool { return strings.HasSuffix(a, "/kubectl") })
	if i < 0 {
		t.Fail("no kubectl in %v", onSite.Args)
	}
	other := alive[slices.IndexFunc(alive, func(n string) bool { return n != node })]
	onNode, err := t.Lab.Inside(t.Ctx, other, onSite.Args[i:]...)
	t.Must(err)
	for _, kubectl := range []*exec.Cmd{onSite, onNode} {
		t.Eventually(20*time.Second, "kubectl shows the pool's heartbeats at "+want, func() error {
			again := exec.CommandContext(t.Ctx, kubectl.Path, kubectl.Args[1:]...)
			again.Env = onSite.Env
			return showsLeases(again, alive)
		})
	}
}

// showsLeases runs a kubectl that prints Leases as JSON, and fails unless these are among them.
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
