package thief

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var hopperScenarios = []kit.Scenario{{
	Name: "pool-hopper", Lab: kit.OnePool.AsInstalled(), Run: poolHopper,
	Doc: "Whoever has a node's certificate tries to get into another pool: by a label, by its status, and by registering " +
		"again after its Node was deleted. Each attempt is refused, or ends without rights there. The names of pools' " +
		"reports are refused to everybody.",
}}

// elsewhere is the pool that the thief wants to get into. Its nodes are objects only.
const elsewhere = edge.PoolName("p9")

func poolHopper(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	makeElsewhere(t)
	thief := t.Pool.Follower()
	client := nodeClient(t, thief)
	nodes := client.CoreV1().Nodes()
	move := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, edge.LabelNodePool, elsewhere)
	for _, sub := range []string{"", "status"} {
		_, err := nodes.Patch(t.Ctx, thief, types.MergePatchType, move, metav1.PatchOptions{}, subresource(sub)...)
		refused(t, thief+" changes its pool by its "+sub, err, "can not change its own pool")
	}

	t.Say("%s is retired, and its certificate lives on", thief)
	before, err := nodes.Get(t.Ctx, thief, metav1.GetOptions{})
	t.Must(err)
	for _, c := range []lab.Component{lab.KubeletC, lab.Hub} {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, thief, c))
	}
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, thief, metav1.DeleteOptions{}))
	register := func(pool edge.PoolName) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: thief, Labels: map[string]string{edge.LabelNodePool: string(pool)}}}
		if pool == "" {
			n.Labels = nil
		}
		n.Status.Addresses = before.Status.Addresses
		_, err := nodes.Create(t.Ctx, n, metav1.CreateOptions{})
		return err
	}
	refused(t, thief+" registers in "+string(elsewhere), register(elsewhere), "can not say by itself that it is in pool p9")
	if may, err := mayForward(t, thief); err != nil || may {
		t.Fail("%s may speak for the nodes of %s: %v, %v", thief, elsewhere, may, err)
	}
	t.Must(register("")) // it may have a Node, of no pool
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, thief, metav1.DeleteOptions{}))

	t.Say("without the policy, as before there was one")
	bindings := t.Cloud.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	const policy = "pool-membership.openyurt.io"
	binding, err := bindings.Get(t.Ctx, policy, metav1.GetOptions{})
	t.Must(err)
	t.Must(bindings.Delete(t.Ctx, policy, metav1.DeleteOptions{}))
	t.Eventually(20*time.Second, "it registers in "+string(elsewhere), func() error { return register(elsewhere) })
	t.Eventually(time.Minute, "and may speak for the nodes there", func() error {
		may, err := mayForward(t, thief)
		if err == nil && !may {
			err = errors.New("it may not")
		}
		return err
	})
	binding.ResourceVersion, binding.UID = "", ""
	_, err = bindings.Create(t.Ctx, binding, metav1.CreateOptions{})
	t.Must(err)
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, thief, metav1.DeleteOptions{}))

	t.Say("the Node that %s's own kubelet makes, in a pool that the chart's values open to nodes", thief)
	for _, c := range []lab.Component{lab.Hub, lab.KubeletC} {
		t.Must(t.Lab.Node(t.Ctx, lab.Start, thief, c))
	}
	t.Eventually(time.Minute, thief+" is in its own pool again, and ready", func() error {
		n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, thief, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && n.Labels[edge.LabelNodePool] == "p1" {
				return nil
			}
		}
		return fmt.Errorf("it is in pool %q, and %+v", n.Labels[edge.LabelNodePool], n.Status.Conditions)
	})
	for _, name := range []string{elsewhere.ReportLease(0), elsewhere.CoordinatorServerName()} {
		_, err := t.Cloud.CoreV1().Nodes().Create(t.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		refused(t, "a Node called "+name, err, "give the node another name")
	}
}

func subresource(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// refused expects that an attempt was forbidden, for that reason.
func refused(t *kit.T, what string, err error, why string) {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
		t.Fail("%s: %v; want it forbidden, and a message that says %q", what, err, why)
	}
	t.Say("refused: %s: %v", what, err)
}

// makeElsewhere makes another pool with a YurtCoordinator and three Nodes, so that there are rights in it.
func makeElsewhere(t *kit.T) {
	t.Cloud.MakePool(string(elsewhere))
	for i := range 3 {
		_, err := t.Cloud.CoreV1().Nodes().Create(t.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: elsewhereNode(i + 1), Labels: map[string]string{edge.LabelNodePool: string(elsewhere)},
		}}, metav1.CreateOptions{})
		t.Must(err)
	}
	_, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).Create(t.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.YurtCoordinators.GroupVersion().String(), "kind": "YurtCoordinator",
		"metadata": map[string]any{"name": string(elsewhere)}, "spec": map[string]any{"nodePool": string(elsewhere)},
	}}, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(30*time.Second, "the rights of "+string(elsewhere)+" are given", func() error {
		_, err := t.Cloud.RbacV1().Roles(corev1.NamespaceNodeLease).Get(t.Ctx, elsewhere.Forwarder(), metav1.GetOptions{})
		return err
	})
}

// mayForward reports whether a node may act as the identity that forwards the heartbeats of the other pool: it tries to
// read a Lease there.
func mayForward(t *kit.T, node string) (bool, error) {
	access, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	access.Impersonate = rest.ImpersonationConfig{UserName: elsewhere.ForwardingUser()}
	forwarder := t.Client(access)
	_, err = forwarder.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, elsewhereNode(1), metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return false, nil
	case err == nil, apierrors.IsNotFound(err): // its nodes are objects only
		return true, nil
	}
	return false, err
}

func elsewhereNode(i int) string { return fmt.Sprintf("%s-x%d", elsewhere, i) }
