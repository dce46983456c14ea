package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

// fourNodes leave three when the coordinator's is dead.
var fourNodes = lab.Config{Pools: 1, Nodes: 4, Timing: lab.Quick}

var lifeScenarios = []Scenario{
	{
		Name: "coordinator-moves", Quick: true, Lab: fourNodes.AsInstalled(), run: coordinatorMoves,
		Doc: "the coordinator's node dies: a coordinator runs on another, with a certificate and a kubeconfig for there, " +
			"hubs find it and delegate again; when the node is back, it has none",
	},
	{
		Name: "remove-coordinator", Quick: true, Lab: pool.AsInstalled(), run: removeCoordinator,
		Doc: "a YurtCoordinator is deleted: nothing of it is left in the cloud or on the nodes, hubs are plain proxies; made " +
			"again, all is as before",
	},
	{
		Name: "too-few-nodes", Lab: pool.AsInstalled(), run: tooFewNodes,
		Doc: "a pool gets no coordinator until it has three nodes, and the YurtCoordinator says so",
	},
	{
		Name: "second-coordinator", Lab: pool.AsInstalled(), run: secondCoordinator,
		Doc: "a second YurtCoordinator for a pool is refused; where the policy is missing, it is Pending and changes nothing",
	},
	{
		Name: "both-autonomies", Lab: pool.AsInstalled(), run: bothAutonomies,
		Doc: "autonomy of a node and a coordinator of its pool exclude each other, from both sides",
	},
	{
		Name: "cert-rotation", Lab: shortLived(pool.AsInstalled()), run: certRotation,
		Doc: "a coordinator's certificate and its operators' last for a minute: they are replaced again and again under load, " +
			"no request fails, no watch ends, no hub leaves the coordinator",
	},
	{
		Name: "controller-restart", Lab: pool.AsInstalled(), run: controllerRestart,
		Doc: "coordinator-controller is killed again and again while a coordinator is made and removed: each ends complete",
	},
}

func (t *T) yurtCoordinator(name string) (*v1alpha1.YurtCoordinator, error) {
	o, err := t.objects.Resource(lab.YurtCoordinators).Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.YurtCoordinator{}
	return c, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c)
}

// makeCoordinator makes a YurtCoordinator for a pool.
func (t *T) makeCoordinator(name, pool string) error {
	_, err := t.objects.Resource(lab.YurtCoordinators).Create(t.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.YurtCoordinators.GroupVersion().String(), "kind": "YurtCoordinator",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"nodePool": pool},
	}}, metav1.CreateOptions{})
	return err
}

// condition returns an error unless a YurtCoordinator has a condition with this status and, if it is not empty, reason.
func (t *T) condition(
	name string, kind v1alpha1.YurtCoordinatorConditionType, status v1alpha1.ConditionStatus, reason string,
) error {
	c, err := t.yurtCoordinator(name)
	if err != nil {
		return err
	}
	for _, has := range c.Status.Conditions {
		if has.Type == kind && has.Status == status && (reason == "" || has.Reason == reason) {
			return nil
		}
	}
	return fmt.Errorf("YurtCoordinator %s has %+v, want %s=%s %s", name, c.Status.Conditions, kind, status, reason)
}

func (t *T) coordinatorIsReady(name string, within time.Duration) {
	t.eventually(within, "YurtCoordinator "+name+" is Ready", func() error {
		return t.condition(name, v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, "")
	})
}

// certificateFor returns an error unless the coordinator's certificate is for an address.
func (t *T) certificateFor(pool edge.PoolName, ip net.IP) error {
	secret, err := t.cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.ctx, pool.CoordinatorSecret(), metav1.GetOptions{})
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

func coordinatorMoves(t *T) {
	was := t.coordinatorNode()
	t.settledAway()
	t.say("cutting the power of %s, where the coordinator is", was)
	killed := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Kill, was, lab.All))
	limit := t.cfg.Timing.Grace + 2*t.cfg.Timing.Monitor
	now := was
	t.eventually(limit+30*time.Second, "its Pod is on another node, and Ready", func() error {
		pods, err := t.cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.ctx,
			metav1.ListOptions{LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName != was && podReady(&p) {
				now = p.Spec.NodeName
				return nil
			}
		}
		return fmt.Errorf("%d Pods, none Ready elsewhere", len(pods.Items))
	})
	t.figure("death_to_coordinator_elsewhere_s", time.Since(killed).Seconds())
	address := net.ParseIP(t.address(now))
	t.eventually(20*time.Second, "its certificate and the kubeconfig are for there", func() error {
		access, err := t.lab.CoordinatorConfig(1, lab.Operator)
		if want := fmt.Sprintf("https://%s:%d", address, edge.PortCoordinator); err == nil && access.Host != want {
			err = fmt.Errorf("the kubeconfig is for %s, want %s", access.Host, want)
		}
		return errors.Join(err, t.certificateFor("p1", address))
	})
	alive := slices.DeleteFunc(t.nodeNames(), func(n string) bool { return n == was })
	leader := t.ledBy(alive, 20*time.Second)
	t.figure("death_to_all_well_s", time.Since(killed).Seconds())
	t.say("the coordinator is on %s, and %s leads", now, leader)
	t.operates(now, alive)

	cutOff := alive[slices.IndexFunc(alive, func(n string) bool { return n != leader && n != now })]
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, cutOff, wire.Drop))
	t.delegated(cutOff, cut)
	t.hold(time.Until(cut.Add(t.cfg.Timing.Grace+5*time.Second)), "more than a grace period")
	t.must(t.lab.Heal(t.ctx, lab.WAN, cutOff))
	t.direct(cutOff, time.Now())
	for _, name := range alive {
		t.must(t.seen.neverNotReady(name, t.start))
	}

	t.say("%s has power again", was)
	t.must(t.lab.Node(t.ctx, lab.Start, was, lab.All))
	t.eventually(time.Minute, was+" is Ready and follows", func() error {
		if h := t.hubs()[was]; h.Role != roleFollower {
			return fmt.Errorf("its hub is %q", h.Role)
		}
		if t.seen.node(was).ready != corev1.ConditionTrue {
			return errors.New("it is NotReady")
		}
		return nil
	})
	t.eventually(20*time.Second, "only one coordinator runs", func() error {
		if running := t.coordinatorsRunning(); !slices.Equal(running, []string{now}) {
			return fmt.Errorf("coordinators run on %v, want %s", running, now)
		}
		return nil
	})
}

// ledBy waits until of these nodes one leads and the others follow it.
func (t *T) ledBy(nodes []string, within time.Duration) (leader string) {
	t.eventually(within, "one hub leads and the others follow", func() error {
		hubs := t.hubs()
		for name := range hubs {
			if !slices.Contains(nodes, name) {
				delete(hubs, name)
			}
		}
		var err error
		if leader, err = t.leader(hubs); err != nil {
			return err
		}
		for name, h := range hubs {
			if name != leader && (h.Role != roleFollower || h.Leader != leader) {
				return fmt.Errorf("%s is %s of %q", name, h.Role, h.Leader)
			}
		}
		return nil
	})
	return leader
}

// ofPool lists all objects in the cloud that were made for a pool's coordinator, but for the pool's nodes.
func (t *T) ofPool(pool edge.PoolName) ([]string, error) {
	var found []string
	selector := metav1.ListOptions{LabelSelector: edge.LabelNodePool + "=" + string(pool)}
	lists, err := t.cloud.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	client := t.objects
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Node" || r.Kind == "Event" {
				continue
			}
			gv := strings.Split(list.GroupVersion, "/")
			gvr := lab.YurtCoordinators
			gvr.Group, gvr.Version, gvr.Resource = strings.Join(gv[:len(gv)-1], ""), gv[len(gv)-1], r.Name
			labelled, err := client.Resource(gvr).List(t.ctx, selector)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range labelled.Items {
				found = append(found, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
			}
		}
	}
	for _, name := range []string{pool.CoordinatorSecret(), pool.KubeconfigSecret(), pool.AuthoritySecret()} {
		if _, err := t.cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.ctx, name, metav1.GetOptions{}); err == nil {
			found = append(found, "Secret "+name)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return found, nil
}

func (t *T) deleteCoordinator(name string) {
	t.must(t.objects.Resource(lab.YurtCoordinators).Delete(t.ctx, name, metav1.DeleteOptions{}))
}

// gone waits until nothing of a pool's coordinator is left: its object, what was made for it, its process.
func (t *T) gone(name string, pool edge.PoolName) {
	t.eventually(time.Minute, "nothing is left of YurtCoordinator "+name+" in the cloud", func() error {
		if _, err := t.yurtCoordinator(name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object is there: %w", err)
		}
		left, err := t.ofPool(pool)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	})
	t.eventually(time.Minute, "no coordinator runs", func() error {
		if running := t.coordinatorsRunning(); len(running) > 0 {
			return fmt.Errorf("one does on %v", running)
		}
		return nil
	})
}

func removeCoordinator(t *T) {
	t.settled(30 * time.Second)
	if made, err := t.ofPool("p1"); err != nil || len(made) < 5 {
		t.fail("what there is of the coordinator: %v, %v", made, err)
	}
	began := time.Now()
	t.deleteCoordinator("p1")
	t.gone("p1", "p1")
	t.figure("deleted_to_gone_s", time.Since(began).Seconds())
	t.eventually(30*time.Second, "hubs know of no coordinator", func() error {
		for name, h := range t.hubs() {
			if h.CoordinatorAddress != "" || h.Role != rolePending {
				return fmt.Errorf("%s: %+v", name, h)
			}
		}
		return nil
	})
	t.hold(t.cfg.Timing.Grace+5*time.Second, "more than a grace period without a coordinator")
	for _, name := range t.nodeNames() {
		t.must(t.seen.neverNotReady(name, began))
		if _, err := t.through(name).CoreV1().Nodes().Get(t.ctx, name, metav1.GetOptions{}); err != nil {
			t.fail("through the hub of %s: %w", name, err)
		}
	}

	t.say("making it again")
	began = time.Now()
	t.must(t.makeCoordinator("p1", "p1"))
	t.coordinatorIsReady("p1", time.Minute)
	t.settled(time.Minute)
	t.figure("made_again_to_all_well_s", time.Since(began).Seconds())
}

// inventPool makes a NodePool, and nodes in it that are nothing but objects.
func (t *T) inventPool(name string, nodes int) {
	t.makePool(name)
	for i := range nodes {
		t.inventNode(fmt.Sprintf("%s-x%d", name, i+1), name, nil)
	}
}

func (t *T) inventNode(name, pool string, annotations map[string]string) {
	_, err := t.cloud.CoreV1().Nodes().Create(t.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{edge.LabelNodePool: pool}, Annotations: annotations,
	}}, metav1.CreateOptions{})
	t.must(err)
}

func tooFewNodes(t *T) {
	t.inventPool("p9", 2)
	t.must(t.makeCoordinator("p9", "p9"))
	t.eventually(20*time.Second, "it is Pending", func() error {
		return t.condition("p9", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionTrue, "TooFewNodes")
	})
	if made, err := t.ofPool("p9"); err != nil || len(made) > 0 {
		t.fail("made for a pool that may not have a coordinator: %v, %v", made, err)
	}
	t.inventNode("p9-x3", "p9", nil)
	t.eventually(20*time.Second, "with a third node it goes on", func() error {
		made, err := t.ofPool("p9")
		if err == nil && len(made) == 0 {
			err = errors.New("nothing is made")
		}
		return errors.Join(err, t.condition("p9", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionFalse, ""))
	})
	t.deleteCoordinator("p9")
	t.eventually(30*time.Second, "it can be deleted, though its Pod never ran", func() error {
		left, err := t.ofPool("p9")
		if _, is := t.yurtCoordinator("p9"); !apierrors.IsNotFound(is) || len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("left: %v, %w", left, is))
		}
		return err
	})
}

func secondCoordinator(t *T) {
	t.settled(30 * time.Second)
	err := t.makeCoordinator("another", "p1")
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.fail("a second YurtCoordinator: %w", err)
	}
	t.say("refused: %v", err)
	policies := t.cloud.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	t.must(policies.Delete(t.ctx, "one-coordinator-per-pool.openyurt.io", metav1.DeleteOptions{}))
	t.eventually(20*time.Second, "without the policy it can be made", func() error { return t.makeCoordinator("another", "p1") })
	t.eventually(20*time.Second, "it is Pending", func() error {
		return t.condition("another", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionTrue, "SecondCoordinator")
	})
	before := t.coordinatorPod()
	t.deleteCoordinator("another")
	t.eventually(20*time.Second, "it can be deleted", func() error {
		if _, err := t.yurtCoordinator("another"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	t.must(t.condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
	if now := t.coordinatorPod(); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.fail("the first one's Pod is another, or was restarted: %+v", now.Status.ContainerStatuses)
	}
	t.settled(10 * time.Second)
}

func bothAutonomies(t *T) {
	patch := []byte(`{"metadata":{"annotations":{"` + edge.AnnotationAutonomy + `":"true"}}}`)
	_, err := t.cloud.CoreV1().Nodes().Patch(t.ctx, "p1-n1", types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.fail("autonomy of a node of a pool with a coordinator: %w", err)
	}
	t.say("refused: %v", err)
	t.inventPool("p9", 3)
	t.inventNode("p9-x4", "p9", map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn})
	t.eventually(20*time.Second, "a coordinator for a pool with an autonomous node is refused", func() error {
		err := t.makeCoordinator("p9", "p9")
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			t.say("refused: %v", err)
			return nil
		}
		if err == nil {
			t.deleteCoordinator("p9") // the policy has not seen the Node yet
		}
		return fmt.Errorf("it is made: %w", err)
	})
}

func controllerRestart(t *T) {
	t.settled(30 * time.Second)
	interrupt := func() {
		const most = 4 * time.Second
		t.hold(rand.N(most), "somewhere in the middle")
		t.must(t.lab.Cloud(t.ctx, lab.Kill, lab.CoordinatorController))
		t.must(t.lab.Cloud(t.ctx, lab.Start, lab.CoordinatorController))
	}
	const rounds = 5
	before := t.coordinatorPod()
	for range rounds {
		t.deleteCoordinator("p1")
		interrupt()
		t.eventually(90*time.Second, "it is gone, and can be made again", func() error { return t.makeCoordinator("p1", "p1") })
		interrupt()
		t.coordinatorIsReady("p1", 90*time.Second)
		t.settled(time.Minute)
	}
	if now := t.coordinatorPod(); now.UID == before.UID {
		t.fail("the Pod is the first one's still")
	}
	t.deleteCoordinator("p1")
	interrupt()
	t.gone("p1", "p1")
}
