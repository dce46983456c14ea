package cloud

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// fourNodes is a pool that has three nodes left when the coordinator's node is dead.
var fourNodes = lab.Config{Pools: 1, Nodes: 4, Timing: lab.Quick}

var lifeScenarios = []kit.Scenario{
	{
		Name: "remove-coordinator", Lab: kit.OnePool.AsInstalled(), Run: removeCoordinator,
		Doc: "A YurtCoordinator is deleted. Nothing of it is left in the cloud or on the nodes, and hubs are plain " +
			"proxies; created again, everything is as before.",
	},
	{
		Name: "cert-rotation", Lab: kit.ShortLived(kit.OnePool.AsInstalled()), Run: certRotation,
		Doc: "A coordinator's certificate and its operators' last one minute and are replaced again and again under load. " +
			"No request fails, no watch ends, and no hub leaves the coordinator.",
	},
}

// makeCoordinator makes a YurtCoordinator for a pool.
func makeCoordinator(t *kit.T, name, pool string) error {
	_, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).Create(t.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.YurtCoordinators.GroupVersion().String(), "kind": "YurtCoordinator",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"nodePool": pool},
	}}, metav1.CreateOptions{})
	return err
}

func coordinatorIsReady(t *kit.T, name string, within time.Duration) {
	t.Eventually(within, "YurtCoordinator "+name+" is Ready", func() error {
		return t.Cloud.Condition(name, v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, "")
	})
}

// newCoordinator waits for a coordinator's Pod that is Ready, is not about to end, and is accepted by the function is.
func newCoordinator(t *kit.T, within time.Duration, what string, is func(*corev1.Pod) bool) (found *corev1.Pod) {
	t.Eventually(within, what, func() error {
		pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx,
			metav1.ListOptions{LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && is(p) && kit.PodReady(p) {
				found = p
				return nil
			}
		}
		return fmt.Errorf("%d Pods, none of them such", len(pods.Items))
	})
	return found
}

// ledBy waits until one of these nodes leads and the others follow it.
func ledBy(t *kit.T, nodes []string, within time.Duration) (leader string) {
	t.Eventually(within, "one hub leads and the others follow", func() error {
		hubs := t.Pool.Hubs()
		for name := range hubs {
			if !slices.Contains(nodes, name) {
				delete(hubs, name)
			}
		}
		var err error
		if leader, err = t.Pool.Leader(hubs); err != nil {
			return err
		}
		for name, h := range hubs {
			if name != leader && (h.Role != kit.RoleFollower || h.Leader != leader) {
				return fmt.Errorf("%s is %s of %q", name, h.Role, h.Leader)
			}
		}
		return nil
	})
	return leader
}

func deleteCoordinator(t *kit.T, name string) {
	t.Must(t.Cloud.Objects.Resource(lab.YurtCoordinators).Delete(t.Ctx, name, metav1.DeleteOptions{}))
}

func removeCoordinator(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	if made, err := t.Cloud.OfPool("p1"); err != nil || len(made) < 5 {
		t.Fail("what there is of the coordinator: %v, %v", made, err)
	}
	began := time.Now()
	deleteCoordinator(t, "p1")
	t.Cloud.Gone("p1", "p1")
	t.Figure("deleted_to_gone_s", time.Since(began).Seconds())
	t.Eventually(30*time.Second, "hubs know of no coordinator", func() error {
		for name, h := range t.Pool.Hubs() {
			if h.CoordinatorAddress != "" || h.Role != kit.RolePending {
				return fmt.Errorf("%s: %+v", name, h)
			}
		}
		return nil
	})
	t.Hold(t.Config.Timing.Grace+5*time.Second, "more than a grace period without a coordinator")
	for _, name := range t.Pool.Nodes() {
		t.NeverNotReady(began, name)
		if _, err := t.Node(name).Client().CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{}); err != nil {
			t.Fail("through the hub of %s: %w", name, err)
		}
	}

	t.Say("making it again")
	began = time.Now()
	t.Must(makeCoordinator(t, "p1", "p1"))
	coordinatorIsReady(t, "p1", time.Minute)
	t.Pool.Settled(time.Minute)
	t.Figure("made_again_to_all_well_s", time.Since(began).Seconds())
}
