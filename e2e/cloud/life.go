package cloud

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

// fourNodes leave three when the coordinator's node is dead.
var fourNodes = lab.Config{Pools: 1, Nodes: 4, Timing: lab.Quick}

var lifeScenarios = []kit.Scenario{
	{
		Name: "coordinator-moves", Lab: fourNodes.AsInstalled(), Run: coordinatorMoves,
		Doc: "The coordinator's node dies. A coordinator starts on another node, with a certificate and a kubeconfig for " +
			"it, and hubs follow; when the old node is back, it runs none.",
	},
	{
		Name: "dead-node-then-upgrade", Lab: fourNodes.AsInstalled(), Run: deadNodeThenUpgrade,
		Doc: "The coordinator's node dies and stays dead, and then all coordinator Pods are replaced, as an upgrade does. " +
			"The pool has a coordinator again, although the dead node's Pod never goes away.",
	},
	{
		Name: "remove-coordinator", Lab: kit.OnePool.AsInstalled(), Run: removeCoordinator,
		Doc: "A YurtCoordinator is deleted. Nothing of it is left in the cloud or on the nodes, and hubs are plain " +
			"proxies; created again, everything is as before.",
	},
	{
		Name: "too-few-nodes", Lab: kit.OnePool.AsInstalled(), Run: tooFewNodes,
		Doc: "A pool gets no coordinator until it has three nodes, and the YurtCoordinator says so.",
	},
	{
		Name: "second-coordinator", Lab: kit.OnePool.AsInstalled(), Run: secondCoordinator,
		Doc: "A second YurtCoordinator for a pool is refused; where that policy is missing, it stays Pending and changes " +
			"nothing.",
	},
	{
		Name: "both-autonomies", Lab: kit.OnePool.AsInstalled(), Run: bothAutonomies,
		Doc: "Autonomy of a node and a coordinator of its pool exclude each other, from both sides.",
	},
	{
		Name: "cert-rotation", Lab: kit.ShortLived(kit.OnePool.AsInstalled()), Run: certRotation,
		Doc: "A coordinator's certificate and its operators' last one minute and are replaced again and again under load. " +
			"No request fails, no watch ends, and no hub leaves the coordinator.",
	},
	{
		Name: "controller-restart", Lab: kit.OnePool.AsInstalled(), Run: controllerRestart,
		Doc: "coordinator-controller is killed again and again while a coordinator is created and removed. Each attempt " +
			"ends complete.",
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

// certificateFor fails unless the coordinator's certificate is for an address.
func certificateFor(t *kit.T, pool edge.PoolName, ip net.IP) error {
	secret, err := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, pool.CoordinatorSecret(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return errors.New("no certificate is in it")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err == nil && !slices.ContainsFunc(certificate.IPAddresses, ip.Equal) {
		err = fmt.Errorf("the certificate is for %v, want %v", certificate.IPAddresses, ip)
	}
	return err
}

func coordinatorMoves(t *kit.T) {
	was, now, killed := coordinatorElsewhere(t)
	address := net.ParseIP(t.Node(now).Address())
	t.Eventually(20*time.Second, "its certificate and the kubeconfig are for there", func() error {
		access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
		if want := fmt.Sprintf("https://%s:%d", address, edge.PortCoordinator); err == nil && access.Host != want {
			err = fmt.Errorf("the kubeconfig is for %s, want %s", access.Host, want)
		}
		return errors.Join(err, certificateFor(t, "p1", address))
	})
	alive := slices.DeleteFunc(t.Pool.Nodes(), func(n string) bool { return n == was })
	leader := ledBy(t, alive, 20*time.Second)
	t.Figure("death_to_all_well_s", time.Since(killed).Seconds())
	t.Say("the coordinator is on %s, and %s leads", now, leader)
	operates(t, now, alive)

	cutOff := alive[slices.IndexFunc(alive, func(n string) bool { return n != leader && n != now })]
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	t.Hold(time.Until(cut.Add(t.Config.Timing.Grace+5*time.Second)), "more than a grace period")
	t.Heal(cutOff)
	t.Node(cutOff).Direct(time.Now())
	t.NeverNotReady(t.Start, alive...)

	t.Say("%s has power again", was)
	t.Must(t.Lab.Node(t.Ctx, lab.Start, was, lab.All))
	t.Eventually(time.Minute, was+" is Ready and follows", func() error {
		if h := t.Pool.Hubs()[was]; h.Role != kit.RoleFollower {
			return fmt.Errorf("its hub is %q", h.Role)
		}
		if t.Seen.Node(was).Ready != corev1.ConditionTrue {
			return errors.New("it is NotReady")
		}
		return nil
	})
	t.Eventually(20*time.Second, "only one coordinator runs", func() error {
		if running := t.Pool.CoordinatorsRunning(); !slices.Equal(running, []string{now}) {
			return fmt.Errorf("coordinators run on %v, want %s", running, now)
		}
		return nil
	})
}

// coordinatorElsewhere ends the power of the coordinator's node, and waits until a coordinator runs on another.
func coordinatorElsewhere(t *kit.T) (was, now string, killed time.Time) {
	was = t.Pool.CoordinatorNode()
	t.Pool.SettledAway()
	t.Say("cutting the power of %s, where the coordinator is", was)
	killed = time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, was, lab.All))
	limit := t.Config.Timing.Grace + 2*t.Config.Timing.Monitor
	now = newCoordinator(t, limit+30*time.Second, "its Pod is on another node, and Ready", func(p *corev1.Pod) bool {
		return p.Spec.NodeName != was
	}).Spec.NodeName
	t.Figure("death_to_coordinator_elsewhere_s", time.Since(killed).Seconds())
	return was, now, killed
}

// newCoordinator waits for a coordinator's Pod that is Ready, is not about to go, and that is accepts.
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

func deadNodeThenUpgrade(t *kit.T) {
	was, _, _ := coordinatorElsewhere(t)
	pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{
		LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator, FieldSelector: "spec.nodeName=" + was,
	})
	t.Must(err)
	if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp == nil {
		t.Fail("%d Pods of the coordinator are left on the dead node, want one that is to go", len(pods.Items))
	}
	// A taint that keeps nothing off is the smallest change of the coordinators' template: they tolerate their pool's.
	taint := corev1.Taint{Key: "example.com/upgraded", Effect: corev1.TaintEffectPreferNoSchedule}
	changed := time.Now()
	patch := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":%q}]}}`, taint.Key, taint.Effect)
	_, err = t.Cloud.Objects.Resource(lab.NodePools).
		Patch(t.Ctx, "p1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	t.Must(err)
	p := newCoordinator(t, time.Minute, "a coordinator of the new template is Ready", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Tolerations, func(o corev1.Toleration) bool { return o.Key == taint.Key })
	})
	t.Figure("upgrade_to_ready_s", time.Since(changed).Seconds())
	left, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).Get(t.Ctx, pods.Items[0].Name, metav1.GetOptions{})
	t.Must(err)
	t.Say("the coordinator is on %s; %s is still to go from %s", p.Spec.NodeName, left.Name, was)
	coordinatorIsReady(t, "p1", 20*time.Second)

	alive := slices.DeleteFunc(t.Pool.Nodes(), func(n string) bool { return n == was })
	leader := ledBy(t, alive, 20*time.Second)
	cutOff := alive[slices.IndexFunc(alive, func(n string) bool { return n != leader && n != p.Spec.NodeName })]
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	t.Heal(cutOff)
	t.Node(cutOff).Direct(time.Now())
	t.NeverNotReady(t.Start, alive...)
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

// inventPool makes a NodePool, and nodes in it that exist only as objects.
func inventPool(t *kit.T, name string, nodes int) {
	t.Cloud.MakePool(name)
	for i := range nodes {
		inventNode(t, fmt.Sprintf("%s-x%d", name, i+1), name, nil)
	}
}

func inventNode(t *kit.T, name, pool string, annotations map[string]string) {
	_, err := t.Cloud.CoreV1().Nodes().Create(t.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{edge.LabelNodePool: pool}, Annotations: annotations,
	}}, metav1.CreateOptions{})
	t.Must(err)
}

func tooFewNodes(t *kit.T) {
	inventPool(t, "p9", 2)
	t.Must(makeCoordinator(t, "p9", "p9"))
	t.Eventually(20*time.Second, "it is Pending", func() error {
		return t.Cloud.Condition("p9", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionTrue, "TooFewNodes")
	})
	if made, err := t.Cloud.OfPool("p9"); err != nil || len(made) > 0 {
		t.Fail("made for a pool that may not have a coordinator: %v, %v", made, err)
	}
	inventNode(t, "p9-x3", "p9", nil)
	t.Eventually(20*time.Second, "with a third node it goes on", func() error {
		made, err := t.Cloud.OfPool("p9")
		if err == nil && len(made) == 0 {
			err = errors.New("nothing is made")
		}
		return errors.Join(err, t.Cloud.Condition("p9", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionFalse, ""))
	})
	deleteCoordinator(t, "p9")
	t.Eventually(30*time.Second, "it can be deleted, though its Pod never ran", func() error {
		left, err := t.Cloud.OfPool("p9")
		if _, is := t.Cloud.YurtCoordinator("p9"); !apierrors.IsNotFound(is) || len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("left: %v, %w", left, is))
		}
		return err
	})
}

func secondCoordinator(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	err := makeCoordinator(t, "another", "p1")
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Fail("a second YurtCoordinator: %w", err)
	}
	t.Say("refused: %v", err)
	policies := t.Cloud.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	t.Must(policies.Delete(t.Ctx, "one-coordinator-per-pool.openyurt.io", metav1.DeleteOptions{}))
	t.Eventually(20*time.Second, "without the policy it can be made", func() error { return makeCoordinator(t, "another", "p1") })
	t.Eventually(20*time.Second, "it is Pending", func() error {
		return t.Cloud.Condition("another", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionTrue, "SecondCoordinator")
	})
	before := t.Pool.CoordinatorPod()
	deleteCoordinator(t, "another")
	t.Eventually(20*time.Second, "it can be deleted", func() error {
		if _, err := t.Cloud.YurtCoordinator("another"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	t.Must(t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
	if now := t.Pool.CoordinatorPod(); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Fail("the first one's Pod is another, or was restarted: %+v", now.Status.ContainerStatuses)
	}
	t.Pool.Settled(10 * time.Second)
}

func bothAutonomies(t *kit.T) {
	patch := []byte(`{"metadata":{"annotations":{"` + edge.AnnotationAutonomy + `":"true"}}}`)
	_, err := t.Cloud.CoreV1().Nodes().Patch(t.Ctx, "p1-n1", types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Fail("autonomy of a node of a pool with a coordinator: %w", err)
	}
	t.Say("refused: %v", err)
	inventPool(t, "p9", 3)
	inventNode(t, "p9-x4", "p9", map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn})
	t.Eventually(20*time.Second, "a coordinator for a pool with an autonomous node is refused", func() error {
		err := makeCoordinator(t, "p9", "p9")
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			t.Say("refused: %v", err)
			return nil
		}
		if err == nil {
			deleteCoordinator(t, "p9") // the policy has not seen the Node yet
		}
		return fmt.Errorf("it is made: %w", err)
	})
}

func controllerRestart(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	interrupt := func() {
		const most = 4 * time.Second
		t.Hold(rand.N(most), "somewhere in the middle")
		t.Must(t.Lab.Cloud(t.Ctx, lab.Kill, lab.CoordinatorController))
		t.Must(t.Lab.Cloud(t.Ctx, lab.Start, lab.CoordinatorController))
	}
	const rounds = 5
	before := t.Pool.CoordinatorPod()
	for range rounds {
		deleteCoordinator(t, "p1")
		interrupt()
		t.Eventually(90*time.Second, "it is gone, and can be made again", func() error { return makeCoordinator(t, "p1", "p1") })
		interrupt()
		coordinatorIsReady(t, "p1", 90*time.Second)
		t.Pool.Settled(time.Minute)
	}
	if now := t.Pool.CoordinatorPod(); now.UID == before.UID {
		t.Fail("the Pod is the first one's still")
	}
	deleteCoordinator(t, "p1")
	interrupt()
	t.Cloud.Gone("p1", "p1")
}
