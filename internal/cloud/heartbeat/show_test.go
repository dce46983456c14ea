package heartbeat

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const kubeletSays, kcmSays = "KubeletNotReady", "NodeStatusUnknown"

func TestPlanShown(t *testing.T) {
	const shown = edge.ReasonCloudLinkDown
	for _, tt := range []struct {
		name    string
		verdict Verdict
		show    Show
		ready   corev1.ConditionStatus
		reason  string
		want    corev1.ConditionStatus // none: not written
		label   Edit                   // of a Node whose label is as it should be
		relayed bool
	}{
		{"link down", Delegated, ShowNotReady, yes, kubeletReady, unknown, Add, false},
		{"link down, shown Ready", Delegated, ShowReady, yes, kubeletReady, none, Keep, false},
		{"link down, not known how to show it", Delegated, ShowUnknown, yes, kubeletReady, none, Keep, false},
		{"down and shown", Delegated, ShowNotReady, unknown, shown, none, Keep, false},
		{"option off", Delegated, ShowReady, unknown, shown, yes, Remove, false},
		{"shown, and no option known yet", Delegated, ShowUnknown, unknown, shown, none, Keep, false},
		{"the kubelet said False", Delegated, ShowNotReady, no, kubeletSays, none, Keep, false},
		{"the kubelet said Unknown", Delegated, ShowNotReady, unknown, kubeletSays, none, Keep, false},
		{"given up, and heard of again", Delegated, ShowReady, unknown, kcmSays, yes, Keep, false},
		{"given up, and heard of again: no option known", Delegated, ShowUnknown, unknown, kcmSays, yes, Keep, false},
		{"given up, and heard of again: to be shown", Delegated, ShowNotReady, unknown, kcmSays, unknown, Add, false},
		{"given up, and not yet heard of", Unobserved, ShowReady, unknown, kcmSays, none, Keep, false},
		{"given up, and back by itself", Direct, ShowReady, unknown, kcmSays, none, Keep, false},
		{"our reason, but False", Delegated, ShowNotReady, no, shown, none, Keep, false},
		{"our reason, but False, and the link up", Direct, ShowNotReady, no, shown, none, Keep, false},
		{"no Ready at all", Delegated, ShowNotReady, none, "", none, Keep, false},
		{"link up", Direct, ShowNotReady, unknown, shown, yes, Remove, false},
		{"link up, the kubelet spoke first", Direct, ShowNotReady, no, kubeletSays, none, Keep, false},
		{"dead", Silent, ShowNotReady, unknown, shown, yes, Remove, false},
		{"dead, option off", Silent, ShowReady, unknown, shown, yes, Remove, false},
		{"dead, nothing known", Silent, ShowUnknown, unknown, shown, yes, Remove, false},
		{"dead, as kube-controller-manager found", Silent, ShowNotReady, unknown, kcmSays, none, Keep, false},
		{"dead when direct", Silent, ShowNotReady, yes, kubeletReady, none, Keep, false},
		{"restart: not yet renewed", Unobserved, ShowNotReady, unknown, shown, none, Keep, false},
		{"restart: not yet renewed, option off", Unobserved, ShowReady, unknown, shown, none, Keep, false},
		{"restart: not yet shown", Unobserved, ShowNotReady, yes, kubeletReady, none, Keep, false},
		{"restart: the Lease is gone", NoLease, ShowNotReady, unknown, shown, yes, Remove, false},
		{"no Lease", NoLease, ShowNotReady, yes, kubeletReady, none, Keep, false},
		{"relayed: its kubelet speaks", Delegated, ShowNotReady, yes, kubeletReady, none, Keep, true},
		{"relayed, and shown until now", Delegated, ShowNotReady, unknown, shown, yes, Remove, true},
		{"relayed, and given up: its kubelet will speak", Delegated, ShowReady, unknown, kcmSays, none, Keep, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := aNode(false, none, "")
			node.Status.Conditions = nil
			if tt.ready != none {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tt.ready, Reason: tt.reason}}
			}
			if isShown(node) {
				node.Labels[edge.LabelExcludeDisruption] = edge.ExcludedCloudLinkDown
			}
			f := Finding{Verdict: tt.verdict, Relayed: tt.relayed, Patience: testSilence}
			c := plan(node, f, wish{show: tt.show})
			var got corev1.ConditionStatus
			if c.Ready != nil {
				if got = c.Ready.Status; c.Ready.Message == "" || c.Event == nil {
					t.Errorf("%+v, and the Event %v: want a message and an Event", c.Ready, c.Event)
				}
			}
			if got != tt.want || c.Exclude != tt.label || c.Unevict {
				t.Errorf("ready %q, label %v, unevict %t; want %q, %v, false", got, c.Exclude, c.Unevict, tt.want, tt.label)
			}
			// What evicts goes from a node that is shown, and from one that is Ready again only because we say so.
			shownAfter := got == unknown || got == none && isShown(node) || got == yes && tt.reason == kcmSays

			node.Spec.Taints = append(node.Spec.Taints,
				corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute})
			if c := plan(node, f, wish{show: tt.show}); c.Unevict != shownAfter {
				t.Errorf("with an evicting taint: unevict %t, want %t", c.Unevict, shownAfter)
			}
			node.Labels[edge.LabelExcludeDisruption] = "true"
			if c := plan(node, f, wish{show: tt.show}); c.Exclude != Keep {
				t.Errorf("somebody else's label: %v, want it kept", c.Exclude)
			}
		})
	}
}

// TestShownIsOneWrite: condition and Ready change together, and the kubelet's LastHeartbeatTime stays, which would be a
// sign of life.
func TestShownIsOneWrite(t *testing.T) {
	w := healthy(t)
	w.show("p1", v1alpha1.DelegatedNotReady)
	before := ConditionOf(w.node("n1"), corev1.NodeReady)
	w.renew("n1", true)
	w.pass(time.Second)
	want := []string{"taint label", "condition True ready Unknown", "event Warning CloudLinkDown"}
	if said := w.said(); !slices.Equal(said, want) {
		t.Errorf("wrote %v, want %v", said, want)
	}
	shown := ConditionOf(w.node("n1"), corev1.NodeReady)
	if !shown.LastHeartbeatTime.Equal(&before.LastHeartbeatTime) ||
		!shown.LastTransitionTime.After(before.LastTransitionTime.Time) {
		t.Errorf("shown at %+v, was %+v", shown, before)
	}
	w.pass(testSilence)
	want = []string{"label", "condition Unknown ready True", "event Warning DelegationStopped"}
	if said := w.said(); !slices.Equal(said, want) {
		t.Errorf("wrote %v at its death, want %v", said, want)
	}
	left := ConditionOf(w.node("n1"), corev1.NodeReady)
	if !left.LastHeartbeatTime.Equal(&before.LastHeartbeatTime) || left.Status != yes || left.Reason != kubeletReady {
		t.Errorf("left as %+v, want it as the kubelet left it: %+v", left, before)
	}
}

// TestShownAgainstOthers: what the kubelet or kube-controller-manager wrote meanwhile is not written over.
func TestShownAgainstOthers(t *testing.T) {
	w := healthy(t)
	outdated := w.node("n1")
	w.editNode("n1", func(n *corev1.Node) { n.Status.Conditions[0].Status = no })
	delegated := Finding{Verdict: Delegated, Annotated: true, Patience: testSilence}
	c := plan(outdated, delegated, wish{show: ShowNotReady})
	c.Taint, c.Exclude = Keep, Keep
	if err := w.policy.apply(t.Context(), outdated.DeepCopy(), c); !apierrors.IsConflict(err) {
		t.Errorf("apply = %v, want a conflict", err)
	}
	if ready := ConditionOf(w.node("n1"), corev1.NodeReady); ready.Status != no {
		t.Errorf("Ready is %+v", ready)
	}
}

// TestRestartInTheMiddle: a controller that dies between its two writes, on the way in and on the way out, leaves what the
// next one ends.
func TestRestartInTheMiddle(t *testing.T) {
	w := healthy(t)
	w.show("p1", v1alpha1.DelegatedNotReady)
	half := func() {
		writes := 0
		w.fail = func(string) error {
			if writes++; writes > 1 {
				return errors.New("killed")
			}
			return nil
		}
	}
	half()
	w.renew("n1", true)
	w.pass(10 * time.Second)
	if n := w.node("n1"); isShown(n) || n.Labels[edge.LabelExcludeDisruption] == "" {
		t.Fatalf("not half done: %+v", n)
	}
	w.fail = nil
	w.start()
	w.pass(time.Second)
	w.renew("n1", true)
	w.pass(time.Second)
	if !isShown(w.node("n1")) {
		t.Error("not shown after the restart")
	}

	half()
	w.renew("n1", false)
	w.pass(10 * time.Second)
	if n := w.node("n1"); !isShown(n) || n.Labels[edge.LabelExcludeDisruption] != "" {
		t.Fatalf("not half undone: %+v", n)
	}
	w.fail = nil
	w.start()
	w.pass(time.Second)
	w.renew("n1", false)
	w.pass(time.Second)
	if n := w.node("n1"); isShown(n) || len(n.Labels) != 1 {
		t.Errorf("still shown after the restart: %+v", n)
	}
}

// TestUnknownOptions: until the YurtCoordinators are in, nodes stay shown as they are, but not the dead.
func TestUnknownOptions(t *testing.T) {
	w := healthy(t)
	w.show("p1", v1alpha1.DelegatedNotReady)
	w.renew("n1", true)
	w.pass(time.Second)
	w.said()
	w.unknown = true
	w.start()
	for range 3 {
		w.renew("n1", true)
		w.pass(10 * time.Second)
	}
	if said := w.said(); said != nil || !isShown(w.node("n1")) {
		t.Errorf("wrote %v with nothing known of the pool", said)
	}
	w.show("p1", v1alpha1.DelegatedReady)
	w.known()
	w.pass(time.Second)
	if said, want := w.said(), []string{"label", "ready True", "event Normal ShownReady"}; !slices.Equal(said, want) {
		t.Errorf("wrote %v when it was known, want %v", said, want)
	}
}

func TestOptions(t *testing.T) {
	c := func(name, pool string, made int64, s v1alpha1.DelegatedNodeStatus) *v1alpha1.YurtCoordinator {
		return &v1alpha1.YurtCoordinator{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(made, 0)},
			Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: pool, DelegatedNodeStatus: s},
		}
	}
	o := newOptions()
	if o.saw(c("a", "p1", 1, "NotReady")) || o.of("p1").show != ShowUnknown || o.of("p2").show != ShowUnknown {
		t.Error("says something before all are in")
	}
	pools := o.complete()
	if len(pools) != 1 || pools[0] != "p1" || o.of("p1").show != ShowNotReady || o.of("p2").show != ShowReady {
		t.Errorf("complete = %v", pools)
	}
	for i, step := range []struct {
		news, want bool
		show       Show
	}{
		{o.saw(c("a", "p1", 1, "NotReady")), false, o.of("p1").show},
		{o.saw(c("b", "p1", 2, "Ready")), false, o.of("p1").show},    // the older counts
		{o.saw(c("A", "p1", 1, "NotReady")), false, o.of("p1").show}, // of two that are as old the first by name
		{o.lost(c("missing", "p9", 1, "Ready")), false, o.of("p1").show},
	} {
		if step.news != step.want || step.show != ShowNotReady {
			t.Errorf("step %d: news %t, shows %v", i, step.news, step.show)
		}
	}
	if o.lost(c("A", "p1", 1, "NotReady")) || !o.lost(c("a", "p1", 1, "NotReady")) || o.of("p1").show != ShowReady {
		t.Errorf("without the older ones: %v", o.of("p1").show)
	}
	if !o.saw(c("b", "p1", 2, "NotReady")) || !o.lost(c("b", "p1", 2, "NotReady")) || len(o.byPool) != 0 {
		t.Errorf("remembers %v", o.byPool)
	}
}

// TestCoordinatorHandler: a YurtCoordinator that went unseen counts as gone, and what is no YurtCoordinator as nothing.
func TestCoordinatorHandler(t *testing.T) {
	w := healthy(t)
	w.show("p1", v1alpha1.DelegatedNotReady)
	h := w.policy.coordinatorHandler()
	h.OnAdd("nonsense", false)
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: w.coordinators["p1"]})
	if got := w.policy.options.of("p1").show; got != ShowReady {
		t.Errorf("shows %v after it is gone", got)
	}
}

func TestWhoIsOnTheRoll(t *testing.T) {
	of := shownRoll().Of
	n := aNode(false, none, "")
	n.Labels = map[string]string{edge.LabelNodePool: "p1"}
	if e, on := of(n); on {
		t.Errorf("a node that is shown as its kubelet says: %v", e)
	}
	n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = unknown, edge.ReasonCloudLinkDown
	if e, on := of(n); !on || e != (roll.Entry{Key: n.Name, Value: "p1"}) {
		t.Errorf("one that is shown NotReady: %v, %t", e, on)
	}
}

// TestRelayedNodesTakePods: a pool may want that of them, and its nodes hear of a change.
func TestRelayedNodesTakePods(t *testing.T) {
	o := newOptions()
	c := &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.YurtCoordinatorSpec{NodePool: "p1"}}
	if got := o.of("p1").relayed; got != prefer {
		t.Errorf("while nothing is known: %q", got)
	}
	o.saw(c)
	o.complete()
	if got := o.of("p1").relayed; got != prefer {
		t.Errorf("by default: %q", got)
	}
	c.Spec.RelayedNodeScheduling = v1alpha1.RelayedEnabled
	if !o.saw(c) || o.of("p1").relayed != bare || o.of("p2").relayed != prefer {
		t.Errorf("%+v, %+v", o.of("p1"), o.of("p2"))
	}
	p := New(Config{})
	p.options = o
	node := aNode(true, corev1.ConditionTrue, ReasonDelegated)
	node.Labels[edge.LabelNodePool] = "p1"
	if got := p.plan(node, Finding{Verdict: Delegated, Relayed: true}); got.Taint != Remove {
		t.Errorf("relayed: taint %v", got.Taint)
	}
	if got := p.plan(node, Finding{Verdict: Delegated}); got.Taint != Keep {
		t.Errorf("delegated: taint %v", got.Taint)
	}
	if got := p.plan(node, Finding{Verdict: Delegated, Unsettled: true}); got.Taint != Add || got.Effect != prefer {
		t.Errorf("unsettled: taint %v %q", got.Taint, got.Effect)
	}
	c.Spec.RelayedNodeScheduling = v1alpha1.RelayedDisabled
	if !o.saw(c) || o.of("p1").relayed != never {
		t.Errorf("disabled: %+v", o.of("p1"))
	}
	for what, f := range map[string]Finding{
		"relayed": {Verdict: Delegated, Relayed: true}, "unsettled": {Verdict: Delegated, Unsettled: true},
	} {
		if got := p.plan(node, f); got.Taint != Keep {
			t.Errorf("disabled, %s: taint %v", what, got.Taint)
		}
	}
}

// TestRelayedIsNews: who relays comes through what the cache keeps of a Lease, and is news for the node.
func TestRelayedIsNews(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := NewSightings(ends.Clock{Ran: func() time.Time { return now }}, testSilence)
	saw := func(second int, annotations map[string]string) bool {
		t.Helper()
		stamp := metav1.NewMicroTime(now.Add(time.Duration(second) * time.Second))
		kept, err := stripLease(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: strconv.Itoa(second), Annotations: annotations},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &stamp},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s.Saw(kept.(*coordinationv1.Lease))
	}
	mark := map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	relayed := map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn, edge.AnnotationRelayedBy: "n2"}
	saw(1, nil)
	saw(2, mark)
	if f, _ := s.Judge("n1"); f.Verdict != Delegated || f.Relayed {
		t.Errorf("delegated: %+v", f)
	}
	if news := saw(3, relayed); !news {
		t.Error("that the node is relayed is no news")
	}
	if f, _ := s.Judge("n1"); f.Verdict != Delegated || !f.Relayed {
		t.Errorf("relayed: %+v", f)
	}
	if saw(4, relayed) {
		t.Error("that it still is is news")
	}
}
