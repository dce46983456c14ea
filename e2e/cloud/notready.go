package cloud

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var notReadyScenarios = []kit.Scenario{{
	Name: "notready-policy", Lab: fourNodes.AsInstalled(), Run: notReadyPolicy,
	Doc: "With `delegatedNodeStatus: NotReady` a delegated node is shown NotReady and keeps its Pods and endpoints, even " +
		"while kube-controller-manager restarts. A node that dies is handled as fast as one that died with its link up.",
}}

func notReadyPolicy(t *kit.T) {
	showDelegated(t, v1alpha1.DelegatedNotReady)
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	other := t.Pool.Follower(leader, node)
	t.DeployWeb()
	impatient(t, node)

	cutAndShown(t, node)
	keptWhileShown(t, node)
	cutAndShown(t, node)
	shownAtWill(t, node)

	t.Say("cutting the power of %s, whose link is fine, and then that of %s, which is shown NotReady", other, node)
	t.Heal(node)
	t.Node(node).Direct(time.Now())
	courseTaken(t, other, "direct")
	cutAndShown(t, node)
	courseTaken(t, node, "delegated")
	if shownNotReady(t, node) == nil {
		t.Fail("%s is dead, and shown as alive", node)
	}
}

// showDelegated changes how the pool's delegated nodes are shown.
func showDelegated(t *kit.T, s v1alpha1.DelegatedNodeStatus) {
	t.Say("delegatedNodeStatus: %s", s)
	setShown(t, s)
}

func setShown(t *kit.T, s v1alpha1.DelegatedNodeStatus) {
	patch := fmt.Appendf(nil, `{"spec":{"delegatedNodeStatus":%q}}`, s)
	_, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).Patch(t.Ctx, "p1", types.MergePatchType, patch,
		metav1.PatchOptions{})
	t.Must(err)
}

// impatient makes a Pod on a node that dies of any eviction at once.
func impatient(t *kit.T, node string) {
	uid := barePod(t, "impatient", node, 0)
	t.Eventually(30*time.Second, "the Pod that tolerates nothing is ready", func() error {
		if p := t.Seen.LivePods()[uid]; !p.Ready {
			return fmt.Errorf("it is %+v", p)
		}
		return nil
	})
}

// shownNotReady fails unless a node is shown NotReady because its heartbeats are delegated.
func shownNotReady(t *kit.T, node string) error {
	n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 || n.Status.Conditions[i].Reason != edge.ReasonCloudLinkDown || n.Labels[edge.LabelExcludeDisruption] == "" {
		return fmt.Errorf("%s has labels %v and conditions %+v", node, n.Labels, n.Status.Conditions)
	}
	return nil
}

// shownReady fails unless a node is Ready.
func shownReady(t *kit.T, node string) error {
	if n := t.Seen.Node(node); n.Ready != corev1.ConditionTrue {
		return fmt.Errorf("Ready=%s", n.Ready)
	}
	return nil
}

// cutAndShown cuts a node's link and waits until the node is shown NotReady, and is listed among those whose Pods stay
// ready.
func cutAndShown(t *kit.T, node string) {
	t.Say("cutting the WAN link of %s, silently", node)
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	t.Eventually(10*time.Second, node+" is shown NotReady", func() error { return shownNotReady(t, node) })
	annotated, _ := t.Seen.FirstLease(node, cut, func(l kit.LeaseAt) bool { return l.Delegated })
	shown, _ := t.Seen.FirstNode(node, cut, func(n kit.NodeAt) bool { return n.Ready != corev1.ConditionTrue })
	t.Figure("cut_to_shown_s", shown.Sub(cut).Seconds())
	t.Figure("annotation_to_shown_s", max(0, shown.Sub(annotated).Seconds()))
	t.Eventually(5*time.Second, "its Pods are on the list", func() error { return listed(t, node) })
}

// listed fails unless these nodes are listed as those whose Pods stay ready.
func listed(t *kit.T, want ...string) error {
	m, err := t.Cloud.CoreV1().ConfigMaps(edge.NamespaceSystem).Get(t.Ctx, edge.ConfigMapShownNotReady, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var on []string
	for _, line := range strings.Fields(m.Data[edge.RollEntry]) {
		name, _, _ := strings.Cut(line, "=")
		on = append(on, name)
	}
	if !slices.Equal(on, want) {
		return fmt.Errorf("%v are, want %v", on, want)
	}
	return nil
}

// keptWhileShown waits much longer than an eviction takes, restarts both programs that decide meanwhile, heals the
// link, and expects that nothing happened to any Pod or endpoint.
func keptWhileShown(t *kit.T, node string) {
	shown := time.Now()
	pods := t.Seen.LivePods()
	web := maps.Clone(pods)
	maps.DeleteFunc(web, func(_ types.UID, p kit.PodAt) bool { return p.Name == "impatient" })
	evicting := t.Config.Timing.Grace + t.Config.Timing.Toleration
	t.Hold(evicting+5*time.Second, "more than a grace period and a toleration")
	t.Say("kube-controller-manager restarts, and finds the node NotReady")
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeControllerManager))
	t.Hold(evicting+5*time.Second, "as long again")
	t.Say("coordinator-controller restarts")
	t.Must(t.Lab.Cloud(t.Ctx, lab.Kill, lab.CoordinatorController))
	t.Must(t.Lab.Cloud(t.Ctx, lab.Start, lab.CoordinatorController))
	t.Hold(t.Config.Timing.Grace, "a grace period more")
	t.Must(shownNotReady(t, node))
	if at, was := t.Seen.FirstNode(node, shown, func(n kit.NodeAt) bool { return n.Ready != corev1.ConditionUnknown }); was {
		t.Fail("%s was not shown NotReady %.1fs after it first was", node, at.Sub(shown).Seconds())
	}
	if at := lostAt(t, node); !at.IsZero() {
		t.Fail("%s was tainted, to evict its Pods, %.1fs after it was shown", node, at.Sub(shown).Seconds())
	}
	if n := t.Seen.SliceChanges(shown); n > 0 {
		t.Fail("the EndpointSlices of Service %s changed %d times", kit.WebName, n)
	}

	healed := t.Heal(node)
	t.Node(node).Direct(healed)
	t.Eventually(30*time.Second, node+" is Ready, and off the list", func() error {
		if err := shownReady(t, node); err != nil {
			return err
		}
		return listed(t)
	})
	ready, _ := t.Seen.FirstNode(node, healed, func(n kit.NodeAt) bool { return n.Ready == corev1.ConditionTrue })
	t.Figure("heal_to_ready_s", ready.Sub(healed).Seconds())
	t.Hold(t.Config.Timing.Toleration+5*time.Second, "what is on its way arrives")
	t.Must(t.Seen.Untouched(pods, shown))
	t.Must(t.Seen.EndpointsKept(kit.Addresses(web), shown))
}

// shownAtWill switches the option while a node is delegated.
func shownAtWill(t *kit.T, node string) {
	pods := t.Seen.LivePods()
	switched := time.Now()
	showDelegated(t, v1alpha1.DelegatedReady)
	t.Eventually(5*time.Second, node+" is Ready again", func() error { return shownReady(t, node) })
	ready, _ := t.Seen.FirstNode(node, switched, func(n kit.NodeAt) bool { return n.Ready == corev1.ConditionTrue })
	t.Figure("option_to_ready_s", ready.Sub(switched).Seconds())
	if t.Seen.Node(node).Taint == "" {
		t.Fail("%s lost its taint by that", node)
	}
	t.Hold(t.Config.Timing.Grace, "a grace period")
	t.NeverNotReady(ready, node)
	flicker(t, node)
	t.Must(t.Seen.Untouched(pods, switched))
	back := time.Now()
	showDelegated(t, v1alpha1.DelegatedNotReady)
	t.Eventually(5*time.Second, node+" is shown NotReady again", func() error { return shownNotReady(t, node) })
	t.Figure("option_to_shown_s", time.Since(back).Seconds())
	t.Hold(t.Config.Timing.Toleration+5*time.Second, "more than a toleration")
	t.Must(t.Seen.Untouched(pods, switched))
}

// flicker switches the option back and forth, so that kube-controller-manager begins to evict while the node is
// NotReady and is about to write when it is Ready. What it began with has changed then, so it looks again, and writes
// all the same.
func flicker(t *kit.T, node string) {
	const (
		attempts = 25 * time.Second // kube-controller-manager makes one attempt in 10 s
		shortest = 40 * time.Millisecond
	)
	const what = "switching delegatedNodeStatus back and forth"
	t.Say("%s for %v", what, attempts)
	times := 0
	for until := time.Now().Add(attempts); time.Now().Before(until); times++ {
		setShown(t, v1alpha1.DelegatedNotReady)
		t.Pause(shortest*time.Duration(1+times%3), what)
		setShown(t, v1alpha1.DelegatedReady)
		t.Pause(shortest, what)
	}
	t.Figure("options_switched", float64(2*times))
	t.Eventually(5*time.Second, node+" is Ready in the end", func() error { return shownReady(t, node) })
}

// courseTaken cuts a node's power and measures Kubernetes' own course: its Pods become not ready, and are evicted.
func courseTaken(t *kit.T, node, how string) {
	pods := kit.On(t.Seen.LivePods(), node)
	if len(pods) == 0 {
		t.Fail("no Pod is on %s", node)
	}
	killed := time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	// As in dies; the last forwarded heartbeat is up to a quarter of a Lease younger.
	limit := t.Config.Timing.Grace + 2*t.Config.Timing.Monitor + t.Config.Timing.Lease/4
	t.Eventually(limit+2*time.Second, "its Pods are called not ready", func() error {
		return eachPod(t, pods, killed, func(p kit.PodAt) bool { return !p.Ready })
	})
	took := figureOfPods(t, how+"_death_to_pods_not_ready_s", pods, killed, func(p kit.PodAt) bool { return !p.Ready })
	if took > limit {
		t.Fail("the Pods on %s were called not ready after %v, want at most %v", node, took, limit)
	}
	// kube-controller-manager taints one of the waiting nodes in 10 s.
	const rate = 10 * time.Second
	t.Eventually(rate+t.Config.Timing.Toleration+5*time.Second, "its Pods are evicted", func() error {
		return eachPod(t, pods, killed, func(p kit.PodAt) bool { return p.Deleting })
	})
	figureOfPods(t, how+"_death_to_evicted_s", pods, killed, func(p kit.PodAt) bool { return p.Deleting })
	t.Figure(how+"_death_to_tainted_s", lostAt(t, node).Sub(killed).Seconds())
}

// eachPod fails unless each of these Pods has been so since then.
func eachPod(t *kit.T, pods map[types.UID]kit.PodAt, since time.Time, so func(kit.PodAt) bool) error {
	for uid, p := range pods {
		if _, was := t.Seen.FirstPod(uid, since, so); !was {
			return errors.New("the Pod " + p.Name + " is not")
		}
	}
	return nil
}

// figureOfPods records when the last of these Pods first was so.
func figureOfPods(t *kit.T, name string, pods map[types.UID]kit.PodAt, since time.Time, so func(kit.PodAt) bool) time.Duration {
	last := since
	for uid := range pods {
		if at, _ := t.Seen.FirstPod(uid, since, so); at.After(last) {
			last = at
		}
	}
	t.Figure(name, last.Sub(since).Seconds())
	return last.Sub(since)
}
