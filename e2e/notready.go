package e2e

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
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var notReadyScenarios = []Scenario{{
	Name: "notready-policy", Lab: fourNodes.AsInstalled(), run: notReadyPolicy,
	Doc: "a pool shows delegated nodes NotReady: Pods and endpoints of a cut node are kept, whatever restarts, and a dead " +
		"one takes Kubernetes' own course, as soon as one that died when direct",
}}

func notReadyPolicy(t *T) {
	t.showDelegated(v1alpha1.DelegatedNotReady)
	bearing, err := observeBearing(t)
	t.must(err)
	leader := t.settledAway()
	node := t.follower(leader)
	other := t.follower(leader, node)
	t.deployWeb()
	t.impatient(node)

	t.cutAndShown(node)
	t.keptWhileShown(bearing, node)
	t.cutAndShown(node)
	t.shownAtWill(node)

	t.say("cutting the power of %s, whose link is fine, and then that of %s, which is shown NotReady", other, node)
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	t.direct(node, time.Now())
	t.courseTaken(bearing, other, "direct")
	t.cutAndShown(node)
	t.courseTaken(bearing, node, "delegated")
	if t.shownNotReady(node) == nil {
		t.fail("%s is dead, and shown as alive", node)
	}
}

// showDelegated changes how the pool's delegated nodes are shown.
func (t *T) showDelegated(s v1alpha1.DelegatedNodeStatus) {
	t.say("delegatedNodeStatus: %s", s)
	t.setShown(s)
}

func (t *T) setShown(s v1alpha1.DelegatedNodeStatus) {
	patch := fmt.Appendf(nil, `{"spec":{"delegatedNodeStatus":%q}}`, s)
	_, err := t.objects.Resource(lab.YurtCoordinators).Patch(t.ctx, "p1", types.MergePatchType, patch, metav1.PatchOptions{})
	t.must(err)
}

// impatient makes a Pod on a node that any eviction would be the end of at once.
func (t *T) impatient(node string) {
	uid := t.barePod("impatient", node, 0)
	t.eventually(30*time.Second, "the Pod that tolerates nothing is ready", func() error {
		if p := t.seen.livePods()[uid]; !p.ready {
			return fmt.Errorf("it is %+v", p)
		}
		return nil
	})
}

// shownNotReady returns an error unless a node is shown NotReady because its heartbeats are delegated.
func (t *T) shownNotReady(node string) error {
	n, err := t.cloud.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 || n.Status.Conditions[i].Reason != edge.ReasonCloudLinkDown || n.Labels[edge.LabelExcludeDisruption] == "" {
		return fmt.Errorf("%s has labels %v and conditions %+v", node, n.Labels, n.Status.Conditions)
	}
	return nil
}

// shownReady returns an error unless a node is Ready.
func (t *T) shownReady(node string) error {
	if n := t.seen.node(node); n.ready != corev1.ConditionTrue {
		return fmt.Errorf("Ready=%s", n.ready)
	}
	return nil
}

// cutAndShown cuts a node's link and waits until it is shown NotReady, and on the list of those whose Pods stay ready.
func (t *T) cutAndShown(node string) {
	t.say("cutting the WAN link of %s, silently", node)
	cut := time.Now()
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.delegated(node, cut)
	t.eventually(10*time.Second, node+" is shown NotReady", func() error { return t.shownNotReady(node) })
	annotated, _ := t.seen.firstLease(node, cut, func(l leaseAt) bool { return l.delegated })
	shown, _ := t.seen.firstNode(node, cut, func(n nodeAt) bool { return n.ready != corev1.ConditionTrue })
	t.figure("cut_to_shown_s", shown.Sub(cut).Seconds())
	t.figure("annotation_to_shown_s", max(0, shown.Sub(annotated).Seconds()))
	t.eventually(5*time.Second, "its Pods are on the list", func() error { return t.listed(node) })
}

// listed returns an error unless these nodes are on the list of those whose Pods stay ready.
func (t *T) listed(want ...string) error {
	m, err := t.cloud.CoreV1().ConfigMaps(edge.NamespaceSystem).Get(t.ctx, edge.ConfigMapShownNotReady, metav1.GetOptions{})
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

// keptWhileShown holds out for well more than it takes to evict, while both of those restart who decide, heals the link, and
// expects that nothing happened to any Pod or endpoint.
func (t *T) keptWhileShown(b *bearing, node string) {
	shown := time.Now()
	pods := t.seen.livePods()
	web := maps.Clone(pods)
	maps.DeleteFunc(web, func(_ types.UID, p podAt) bool { return p.name == "impatient" })
	evicting := t.cfg.Timing.Grace + t.cfg.Timing.Toleration
	t.hold(evicting+5*time.Second, "more than a grace period and a toleration")
	t.say("kube-controller-manager restarts, and finds the node NotReady")
	t.must(t.lab.Cloud(t.ctx, lab.Restart, lab.KubeControllerManager))
	t.hold(evicting+5*time.Second, "as long again")
	t.say("coordinator-controller restarts")
	t.must(t.lab.Cloud(t.ctx, lab.Kill, lab.CoordinatorController))
	t.must(t.lab.Cloud(t.ctx, lab.Start, lab.CoordinatorController))
	t.hold(t.cfg.Timing.Grace, "a grace period more")
	t.must(t.shownNotReady(node))
	if at, was := t.seen.firstNode(node, shown, func(n nodeAt) bool { return n.ready != corev1.ConditionUnknown }); was {
		t.fail("%s was not shown NotReady %.1fs after it first was", node, at.Sub(shown).Seconds())
	}
	if at := b.taintedAt(node); !at.IsZero() {
		t.fail("%s was tainted, to evict its Pods, %.1fs after it was shown", node, at.Sub(shown).Seconds())
	}
	if n := t.seen.sliceChanges(shown); n > 0 {
		t.fail("the EndpointSlices of Service %s changed %d times", webName, n)
	}

	healed := time.Now()
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	t.direct(node, healed)
	t.eventually(30*time.Second, node+" is Ready, and off the list", func() error {
		if err := t.shownReady(node); err != nil {
			return err
		}
		return t.listed()
	})
	ready, _ := t.seen.firstNode(node, healed, func(n nodeAt) bool { return n.ready == corev1.ConditionTrue })
	t.figure("heal_to_ready_s", ready.Sub(healed).Seconds())
	t.hold(t.cfg.Timing.Toleration+5*time.Second, "what is on its way arrives")
	t.must(t.seen.untouched(pods, shown))
	t.must(t.seen.endpointsKept(addresses(web), shown))
}

// shownAtWill switches the option while a node is delegated.
func (t *T) shownAtWill(node string) {
	pods := t.seen.livePods()
	switched := time.Now()
	t.showDelegated(v1alpha1.DelegatedReady)
	t.eventually(5*time.Second, node+" is Ready again", func() error { return t.shownReady(node) })
	ready, _ := t.seen.firstNode(node, switched, func(n nodeAt) bool { return n.ready == corev1.ConditionTrue })
	t.figure("option_to_ready_s", ready.Sub(switched).Seconds())
	if !t.seen.node(node).tainted {
		t.fail("%s lost its taint by that", node)
	}
	t.hold(t.cfg.Timing.Grace, "a grace period")
	t.must(t.seen.neverNotReady(node, ready))
	t.flicker(node)
	t.must(t.seen.untouched(pods, switched))
	back := time.Now()
	t.showDelegated(v1alpha1.DelegatedNotReady)
	t.eventually(5*time.Second, node+" is shown NotReady again", func() error { return t.shownNotReady(node) })
	t.figure("option_to_shown_s", time.Since(back).Seconds())
	t.hold(t.cfg.Timing.Toleration+5*time.Second, "more than a toleration")
	t.must(t.seen.untouched(pods, switched))
}

// flicker switches the option back and forth, so that kube-controller-manager begins to evict while the node is NotReady and
// is about to write that when it is Ready: what it began with has changed, so it looks again and writes all the same.
func (t *T) flicker(node string) {
	const (
		attempts = 25 * time.Second // kube-controller-manager makes one in 10 s
		shortest = 40 * time.Millisecond
	)
	const what = "switching delegatedNodeStatus back and forth"
	t.say("%s for %v", what, attempts)
	times := 0
	for until := time.Now().Add(attempts); time.Now().Before(until); times++ {
		t.setShown(v1alpha1.DelegatedNotReady)
		t.pause(shortest*time.Duration(1+times%3), what)
		t.setShown(v1alpha1.DelegatedReady)
		t.pause(shortest, what)
	}
	t.figure("options_switched", float64(2*times))
	t.eventually(5*time.Second, node+" is Ready in the end", func() error { return t.shownReady(node) })
}

// courseTaken cuts a node's power and measures Kubernetes' own course: its Pods are called not ready, and evicted.
func (t *T) courseTaken(b *bearing, node, how string) {
	pods := on(t.seen.livePods(), node)
	if len(pods) == 0 {
		t.fail("no Pod is on %s", node)
	}
	killed := time.Now()
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.All))
	// As in dies; and the last forwarded heartbeat is up to a quarter of a Lease younger.
	limit := t.cfg.Timing.Grace + 2*t.cfg.Timing.Monitor + t.cfg.Timing.Lease/4
	t.eventually(limit+2*time.Second, "its Pods are called not ready", func() error {
		return t.eachPod(pods, killed, func(p podAt) bool { return !p.ready })
	})
	took := t.figureOfPods(how+"_death_to_pods_not_ready_s", pods, killed, func(p podAt) bool { return !p.ready })
	if took > limit {
		t.fail("the Pods on %s were called not ready after %v, want at most %v", node, took, limit)
	}
	// kube-controller-manager taints a node in 10 s, of all that it would.
	const rate = 10 * time.Second
	t.eventually(rate+t.cfg.Timing.Toleration+5*time.Second, "its Pods are evicted", func() error {
		return t.eachPod(pods, killed, func(p podAt) bool { return p.deleting })
	})
	t.figureOfPods(how+"_death_to_evicted_s", pods, killed, func(p podAt) bool { return p.deleting })
	t.figure(how+"_death_to_tainted_s", b.taintedAt(node).Sub(killed).Seconds())
}

// eachPod returns an error unless each of these Pods has been so since then.
func (t *T) eachPod(pods map[types.UID]podAt, since time.Time, so func(podAt) bool) error {
	for uid, p := range pods {
		if _, was := t.seen.firstPod(uid, since, so); !was {
			return errors.New("the Pod " + p.name + " is not")
		}
	}
	return nil
}

// figureOfPods records when the last of these Pods first was so.
func (t *T) figureOfPods(name string, pods map[types.UID]podAt, since time.Time, so func(podAt) bool) time.Duration {
	last := since
	for uid := range pods {
		if at, _ := t.seen.firstPod(uid, since, so); at.After(last) {
			last = at
		}
	}
	t.figure(name, last.Sub(since).Seconds())
	return last.Sub(since)
}

// firstPod returns when a Pod first was as wanted since then.
func (h *history) firstPod(uid types.UID, since time.Time, want func(podAt) bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pods[uid] {
		if p.at.After(since) && want(p) {
			return p.at, true
		}
	}
	return time.Time{}, false
}

// sliceChanges counts the changes of the web Service's EndpointSlices since then.
func (h *history) sliceChanges(since time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, all := range h.slices {
		for _, s := range all {
			if s.service == webName && s.at.After(since) {
				n++
			}
		}
	}
	return n
}
