package charts

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// Who kube-controller-manager's node lifecycle controller is, with and without service accounts for its parts.
var lifecycleControllers = []string{"system:serviceaccount:kube-system:node-controller", "system:kube-controller-manager"}

const otherController = "system:serviceaccount:kube-system:pod-garbage-collector"

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: kind, Status: status, Reason: reason}
}

// withConditions makes a Node that has these conditions.
func withConditions(t *testing.T, c client.Client, name string, conditions ...corev1.NodeCondition) *corev1.Node {
	t.Helper()
	n := node(name, "", nil)
	create(t, c, n)
	n.Status.Conditions = conditions
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestHoldEvictions(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	const ready, yes, no, unknown = corev1.NodeReady, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	const evict, unschedule = corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule
	shown := condition(ready, unknown, edge.ReasonCloudLinkDown)
	silent := condition(ready, unknown, "NodeStatusUnknown")
	held := condition(edge.ConditionEvictionsHeld, yes, "WholePoolCut")
	for i, tt := range []struct {
		conditions []corev1.NodeCondition
		before     []corev1.Taint
		key        string
		effect     corev1.TaintEffect
		want       string // what the refusal says; empty: accepted
	}{
		{[]corev1.NodeCondition{shown}, nil, corev1.TaintNodeUnreachable, evict, "are delegated"},
		{[]corev1.NodeCondition{shown}, nil, corev1.TaintNodeNotReady, evict, "are delegated"},
		{[]corev1.NodeCondition{silent, held}, nil, corev1.TaintNodeUnreachable, evict, "are held"},
		{[]corev1.NodeCondition{condition(ready, no, "KubeletNotReady"), held}, nil, corev1.TaintNodeNotReady, evict, "are held"},
		// Begun when it was not: the node has come back meanwhile.
		{[]corev1.NodeCondition{condition(ready, yes, "KubeletReady")}, nil, corev1.TaintNodeUnreachable, evict, "is Ready"},
		{[]corev1.NodeCondition{condition(ready, yes, edge.ReasonCloudLinkDown)}, nil,
			corev1.TaintNodeNotReady, evict, "is Ready"},
		// One that is there is not the other.
		{[]corev1.NodeCondition{shown}, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: evict}},
			corev1.TaintNodeUnreachable, evict, "are delegated"},
		{[]corev1.NodeCondition{shown}, []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: unschedule}},
			corev1.TaintNodeUnreachable, evict, "are delegated"},

		{[]corev1.NodeCondition{shown}, nil, corev1.TaintNodeUnreachable, unschedule, ""},
		{[]corev1.NodeCondition{shown, held}, nil, "node.cloudprovider.kubernetes.io/shutdown", evict, ""},
		{[]corev1.NodeCondition{shown, held}, []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: evict}},
			"example.org/other", unschedule, ""}, // any other write to a Node that has it
		{[]corev1.NodeCondition{silent}, nil, corev1.TaintNodeUnreachable, evict, ""},
		{[]corev1.NodeCondition{silent, condition(edge.ConditionEvictionsHeld, no, "Over")}, nil,
			corev1.TaintNodeUnreachable, evict, ""},
		{[]corev1.NodeCondition{condition(ready, no, edge.ReasonCloudLinkDown)}, nil, corev1.TaintNodeNotReady, evict, ""},
		{[]corev1.NodeCondition{silent, condition(edge.ConditionCloudLinkDown, unknown, "DelegationStopped")}, nil,
			corev1.TaintNodeUnreachable, evict, ""},
		{[]corev1.NodeCondition{{Type: ready, Status: unknown}}, nil, corev1.TaintNodeUnreachable, evict, ""},
		{nil, nil, corev1.TaintNodeUnreachable, evict, ""},
	} {
		what := fmt.Sprintf("%d: %s:%s where %v", i, tt.key, tt.effect, tt.conditions)
		n := withConditions(t, admin, fmt.Sprintf("ev-%d", i), tt.conditions...)
		taint := func(by client.Client, taints ...corev1.Taint) error {
			tainted := n.DeepCopy()
			patch := client.MergeFrom(n)
			tainted.Spec.Taints = slices.Concat(tt.before, taints)
			return by.Patch(t.Context(), tainted, patch, client.DryRunAll)
		}
		if len(tt.before) > 0 {
			patch := client.MergeFrom(n.DeepCopy())
			n.Spec.Taints = tt.before
			if err := admin.Patch(t.Context(), n, patch); err != nil {
				t.Fatal(err)
			}
		}
		added := corev1.Taint{Key: tt.key, Effect: tt.effect}
		for _, user := range lifecycleControllers {
			by := cloudtest.Client(t, cloudtest.As(cfg, user, "system:masters"))
			if tt.want == "" {
				mustAccept(t, user+" adds "+what, taint(by, added))
			} else {
				mustRefuse(t, user+" adds "+what, taint(by, added), "node "+n.Name, tt.want)
			}
			bare := n.DeepCopy()
			patch := client.MergeFrom(n)
			bare.Spec.Taints = nil
			mustAccept(t, user+" removes all: "+what, by.Patch(t.Context(), bare, patch, client.DryRunAll))
		}
		for _, user := range []string{"admin", otherController} {
			by := cloudtest.Client(t, cloudtest.As(cfg, user, "system:masters"))
			mustAccept(t, user+" adds "+what, taint(by, added))
		}
	}
}

func TestKeepPodsReady(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	pod := func(name, node string, ready corev1.ConditionStatus) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
				Name: "c", Image: "i", ImagePullPolicy: corev1.PullNever,
			}}, AutomountServiceAccountToken: new(bool)},
		}
		create(t, admin, p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		p.Status.Phase = corev1.PodRunning
		if err := admin.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	defaultAccount(t, admin)
	kept, other, unready := pod("kept", "kept-1", yes), pod("other", "kept-10", yes), pod("unready", "kept-1", no)
	unbound := pod("unbound", "", yes)
	report := func(by client.Client, p *corev1.Pod, edit func(*corev1.PodStatus)) error {
		changed := p.DeepCopy()
		edit(&changed.Status)
		return by.Status().Update(t.Context(), changed, client.DryRunAll)
	}
	notReady := func(s *corev1.PodStatus) { s.Conditions[0].Status = no }
	as := func(user string) client.Client { return cloudtest.Client(t, cloudtest.As(cfg, user, "system:masters")) }
	for _, user := range lifecycleControllers {
		mustAccept(t, user+" without the list", report(as(user), kept, notReady))
	}
	list := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: edge.ConfigMapShownNotReady, Namespace: edge.NamespaceSystem},
		Data:       map[string]string{edge.RollEntry: "\nkept-1=p1\nkept-2=\n"},
	}
	create(t, admin, list)
	for _, user := range lifecycleControllers {
		c := as(user)
		nowRefused(t, user+" marks a Pod not ready", func() error { return report(c, kept, notReady) },
			"node kept-1 are delegated")
		mustRefuse(t, user+" takes the condition away",
			report(c, kept, func(s *corev1.PodStatus) { s.Conditions = nil }), "node kept-1 are delegated")
		mustAccept(t, user+" reports something else", report(c, kept, func(s *corev1.PodStatus) {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: yes})
		}))
		mustAccept(t, user+" on another node", report(c, other, notReady))
		mustAccept(t, user+" of a Pod without a node", report(c, unbound, notReady))
		mustAccept(t, user+" of one that is not ready", report(c, unready, func(s *corev1.PodStatus) { s.Message = "x" }))
		mustAccept(t, user+" deletes it", c.Delete(t.Context(), kept, client.DryRunAll))
		labelled := kept.DeepCopy()
		labelled.Labels = map[string]string{"a": "b"}
		mustAccept(t, user+" labels it", c.Update(t.Context(), labelled, client.DryRunAll))
	}
	for _, user := range []string{"system:node:kept-1", "admin", otherController} {
		mustAccept(t, user+" marks it not ready", report(as(user), kept, notReady))
	}
	list.Data = nil
	if err := admin.Update(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	cloudtest.Eventually(t, "nobody is on the list", func() error { return report(as(lifecycleControllers[0]), kept, notReady) })
	if err := admin.Delete(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

// defaultAccount makes the ServiceAccount that Kubernetes' controllers would.
func defaultAccount(t *testing.T, c client.Client) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	if err := client.IgnoreAlreadyExists(c.Create(t.Context(), account)); err != nil {
		t.Fatal(err)
	}
}
