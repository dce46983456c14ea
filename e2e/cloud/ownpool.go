package cloud

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var ownPoolScenarios = []kit.Scenario{{
	Name: "own-coordinator", Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), Run: ownCoordinator,
	Doc: "Two pools share one Service for their coordinators: each node reaches its own pool's coordinator there, or " +
		"none. A coordinator whose pool is cut off warns about what is not current. A node that dies while delegated is " +
		"no longer delegated. The cloud knows the versions of hubs and coordinators. A version that does not exist is " +
		"reported, and the former one goes back in.",
}}

func ownCoordinator(t *kit.T) {
	for _, pool := range []string{"p1", "p2"} {
		coordinatorIsReady(t, pool, 60*time.Second)
		filled(t, pool, v1alpha1.ConditionTrue, v1alpha1.ConditionTrue)
	}
	inMemory(t)
	eachItsOwn(t)
	t.Pool.Settled(30 * time.Second)
	versionsAreTold(t)
	versionIsSaid(t)
	completeAndCurrent(t)
	delegatedIsLiving(t)
}

// filled waits until a pool's YurtCoordinator says how far its coordinator has what the pool shares.
func filled(t *kit.T, pool string, complete, current v1alpha1.ConditionStatus) {
	t.Eventually(60*time.Second, fmt.Sprintf("%s has complete=%s, current=%s", pool, complete, current), func() error {
		return errors.Join(t.Cloud.Condition(pool, v1alpha1.YurtCoordinatorResourcesComplete, complete, ""),
			t.Cloud.Condition(pool, v1alpha1.YurtCoordinatorResourcesCurrent, current, ""))
	})
}

// inMemory: what a coordinator stores is on a memory file system of its node.
func inMemory(t *kit.T) {
	node := t.Pool.CoordinatorNode()
	pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{
		LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator, FieldSelector: "spec.nodeName=" + node,
	})
	t.Must(err)
	if len(pods.Items) != 1 {
		t.Fail("%d Pods of coordinators on %s", len(pods.Items), node)
	}
	mounts, err := t.Lab.Output(t.Ctx, node, "cat", "/proc/mounts")
	t.Must(err)
	for line := range strings.Lines(mounts) {
		if strings.Contains(line, string(pods.Items[0].UID)+"/volumes/kubernetes.io~empty-dir/") &&
			strings.HasPrefix(line, "tmpfs ") {
			return
		}
	}
	t.Fail("the volume of %s is no tmpfs:\n%s", pods.Items[0].Name, mounts)
}

// eachItsOwn: at the Service's address each node reaches the coordinator of its own pool, and never another's.
func eachItsOwn(t *kit.T) {
	service, err := t.Cloud.CoreV1().Services(edge.NamespaceSystem).Get(t.Ctx, edge.ServiceCoordinator, metav1.GetOptions{})
	t.Must(err)
	t.Eventually(30*time.Second, "the Service has both coordinators", func() error {
		all, err := t.Cloud.DiscoveryV1().EndpointSlices(edge.NamespaceSystem).List(t.Ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
		if err != nil {
			return err
		}
		ready := 0
		for _, s := range all.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					ready++
				}
			}
		}
		if ready != 2 {
			return fmt.Errorf("%d endpoints are ready", ready)
		}
		return nil
	})
	at := "https://" + net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(edge.PortCoordinator))
	const times = 8 // an address that leads to both would be found with certainty enough
	for _, pool := range []string{"p1", "p2"} {
		for _, node := range nodesOf(pool) {
			t.Eventually(30*time.Second, node+" reaches the coordinator of "+pool+" at "+at, func() error {
				return ownNodes(t, pool, node, at)
			})
			for range times {
				t.Must(ownNodes(t, pool, node, at))
			}
		}
	}
	t.Figure("own_coordinator_connections", times*6)

	node := t.Pool.CoordinatorNode()
	t.Say("killing the coordinator of p1: its nodes reach none, rather than that of p2")
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Coordinator))
	for _, node := range nodesOf("p1") {
		out, err := dialled(t, "p1", node, at)
		if err == nil || strings.Contains(out, "x509") || strings.Contains(out, "tls: ") {
			t.Fail("%s reaches a coordinator that is not its pool's: %s", node, out)
		}
	}
	t.Must(ownNodes(t, "p2", "p2-n1", at))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Coordinator))
}

func nodesOf(pool string) []string { return []string{pool + "-n1", pool + "-n2", pool + "-n3"} }

// ownNodes fails unless a node sees its own pool's Nodes, and no other's, at an address of coordinators.
func ownNodes(t *kit.T, pool, node, at string) error {
	out, err := dialled(t, pool, node, at)
	if err != nil {
		return err
	}
	got := strings.Fields(strings.ReplaceAll(out, "node/", ""))
	if slices.Sort(got); !slices.Equal(got, nodesOf(pool)) {
		return fmt.Errorf("%s sees the Nodes %v at %s", node, got, at)
	}
	return nil
}

// dialled is what a pool's kubectl prints of Nodes, on a node, at an address of coordinators.
func dialled(t *kit.T, pool, node, at string) (string, error) {
	return onNode(t, pool, node, "--server="+at, "--tls-server-name="+edge.PoolName(pool).CoordinatorServerName(),
		"--request-timeout=5s", "get", "nodes", "-o", "name")
}

// onNode runs a pool's kubectl on a node, with the operators' kubeconfig of the pool.
func onNode(t *kit.T, pool, node string, args ...string) (string, error) {
	onSite, err := t.Lab.Kubectl(t.Ctx, "coordinator/"+pool, args)
	t.Must(err)
	i := slices.IndexFunc(onSite.Args, func(a string) bool { return strings.HasSuffix(a, "/kubectl") })
	if i < 0 {
		t.Fail("no kubectl in %v", onSite.Args)
	}
	cmd, err := t.Lab.Inside(t.Ctx, node, onSite.Args[i:]...)
	t.Must(err)
	return combined(cmd)
}

func combined(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, out.String())
	}
	return out.String(), nil
}

// versionsAreTold: the cloud knows of which release each hub and the coordinator is.
func versionsAreTold(t *kit.T) {
	t.Eventually(60*time.Second, "the cloud knows the versions of p1's hubs and coordinator", func() error {
		report, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, edge.PoolName("p1").ReportLease(0),
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		said := edge.SplitVersions(report.Annotations[edge.AnnotationHubVersion])
		for _, node := range nodesOf("p1") {
			if !edge.IsVersion(said[edge.NodeName(node)]) {
				return fmt.Errorf("of %s it is told %q", node, said[edge.NodeName(node)])
			}
		}
		var c v1alpha1.YurtCoordinator
		o, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).Get(t.Ctx, "p1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &c); err != nil {
			return err
		}
		if len(c.Status.Coordinators) != 1 || !strings.Contains(c.Status.Coordinators[0].Version, "-k") {
			return fmt.Errorf("of coordinators its status says %+v", c.Status.Coordinators)
		}
		return nil
	})
}

// versionIsSaid: spec.version is the Kubernetes that the coordinator is made from, and one that can't be had is said.
func versionIsSaid(t *kit.T) {
	setVersion := func(version string) {
		patch := fmt.Appendf(nil, `{"spec":{"version":%q}}`, version)
		_, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).Patch(t.Ctx, "p2", types.MergePatchType, patch,
			metav1.PatchOptions{})
		t.Must(err)
	}
	image := func() string {
		pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx,
			metav1.ListOptions{LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator + "," + edge.LabelNodePool + "=p2"})
		t.Must(err)
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil {
				return p.Spec.Containers[0].Image
			}
		}
		return ""
	}
	is := image()
	_, kubernetes, composed := strings.Cut(is, "-k")
	const missing = "1.36.0"
	if !composed || kubernetes == missing {
		t.Fail("the coordinator runs the image %q", is)
	}
	t.Say("asking for version v%s of p2's coordinator, which no registry has", missing)
	setVersion("v" + missing)
	t.Eventually(90*time.Second, "the YurtCoordinator says that no node gets it, and the coordinator goes on", func() error {
		return errors.Join(
			t.Cloud.Condition("p2", v1alpha1.YurtCoordinatorReconciling, v1alpha1.ConditionTrue, "ImageNotPulled"),
			t.Cloud.Condition("p2", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
	})
	setVersion("v" + kubernetes)
	t.Eventually(60*time.Second, "nothing is to be changed any more", func() error {
		return t.Cloud.Condition("p2", v1alpha1.YurtCoordinatorReconciling, v1alpha1.ConditionFalse, "UpToDate")
	})
	if now := image(); now != is {
		t.Fail("the coordinator runs the image %s, want %s", now, is)
	}
}

// completeAndCurrent: a coordinator says to people, to programs and to the cloud how far it has what the pool shares.
func completeAndCurrent(t *kit.T) {
	filled(t, "p1", v1alpha1.ConditionTrue, v1alpha1.ConditionTrue)
	says := func(what, resource string, parts ...string) {
		t.Eventually(60*time.Second, what, func() error {
			out, err := onNode(t, "p1", "p1-n2", "get", resource)
			for _, part := range parts {
				if !strings.Contains(out, part) {
					err = errors.Join(err, fmt.Errorf("no %q", part))
				}
			}
			if len(parts) == 0 && strings.Contains(out, "Warning") {
				err = errors.Join(err, errors.New("it warns"))
			}
			if err != nil {
				err = fmt.Errorf("get %s: %w: %s", resource, err, out)
			}
			return err
		})
	}
	says("nobody is warned of what is current", "services")
	says("the pool's NodePool is shown", "nodepool/p1")
	t.Say("cutting all WAN links of p1")
	t.Cut("pool/p1")
	cut := time.Now()
	t.Eventually(time.Minute, "the YurtCoordinator says that no Pod of its pool is evicted", func() error {
		return t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorEvictionsHeld, v1alpha1.ConditionTrue, "WholePoolCut")
	})
	t.Figure("cut_to_condition_s", time.Since(cut).Seconds())
	says("kubectl warns of what is not current", "services", "Warning: services are complete here but not current", "since 20")
	says("the pool's NodePool is shown without the cloud", "nodepool/p1",
		"Warning: nodepools.apps.openyurt.io are complete", "p1")

	node := t.Pool.CoordinatorNode()
	t.Say("killing the coordinator, which kubelet starts again, empty")
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Coordinator))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Coordinator))
	says("kubectl says who has filled it", "services", "Warning: services are complete here but not current: a node that can't "+
		"reach the cloud has brought them")
	says("the pool's NodePool is shown by one, too", "nodepool/p1", "Warning: nodepools.apps.openyurt.io are complete", "p1")
	answered(t)
	t.Heal("pool/p1")
	t.Pool.Settled(60 * time.Second)
	says("nobody is warned of what is current again", "services")
	says("the pool's NodePool is shown again", "nodepool/p1")
	filled(t, "p1", v1alpha1.ConditionTrue, v1alpha1.ConditionTrue)
	t.Eventually(time.Minute, "the YurtCoordinator says that nothing is held any more", func() error {
		return t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorEvictionsHeld, v1alpha1.ConditionFalse, "NotHeld")
	})
}

// answered: a node's programs are answered what a filler has brought.
func answered(t *kit.T) {
	access, err := t.Lab.CoordinatorConfig(1, "p1-n2")
	t.Must(err)
	t.Eventually(30*time.Second, "a node is shown the EndpointSlices", func() error {
		answer, err := t.Ask(t.Ctx, access, "/apis/discovery.k8s.io/v1/endpointslices", "application/json")
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
}

// delegatedIsLiving: a node that dies while its heartbeats are delegated is delegated no more.
func delegatedIsLiving(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	t.Eventually(20*time.Second, "the YurtCoordinator says so", func() error { return saysDelegated(t, node) })
	t.Say("cutting the power of %s, which is delegated", node)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	t.Eventually(t.Config.Timing.Grace+20*time.Second, node+" is not Ready", func() error {
		if n := t.Seen.Node(node); n.Ready == corev1.ConditionTrue {
			return errors.New("it is Ready")
		}
		return nil
	})
	t.Eventually(20*time.Second, "the YurtCoordinator does not name it any more", func() error { return saysDelegated(t) })
	if l := t.Seen.Lease(node); !l.Delegated {
		t.Fail("the Lease of %s has lost its mark, so that nothing was shown", node)
	}
}
