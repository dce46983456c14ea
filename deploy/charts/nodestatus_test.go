package charts

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/edge"
)

// conditionPatch is a strategic merge patch of one condition of a Node.
func conditionPatch(kind corev1.NodeConditionType, status, reason string) string {
	return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":%q}]}}`, kind, status, reason)
}

// attributePatch is a patch of one label or annotation.
func attributePatch(kind, key, value string) string {
	return fmt.Sprintf(`{"metadata":{%q:{%q:%q}}}`, kind, key, value)
}

// TestANodeKeepsNoPodsByItsOwnWord: whatever a node writes into its Node before it goes away, Kubernetes may evict its Pods.
func TestANodeKeepsNoPodsByItsOwnWord(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	lifecycle := cloudtest.Client(t, cloudtest.As(cfg, lifecycleControllers[0], "system:masters"))
	for name, says := range map[string]string{
		"held":      conditionPatch(edge.ConditionEvictionsHeld, "True", "WholePoolCut"),
		"delegated": conditionPatch(corev1.NodeReady, "Unknown", edge.ReasonCloudLinkDown),
	} {
		n := withConditions(t, admin, "own-word-"+name, condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"))
		self := cloudtest.Client(t, cloudtest.As(cfg, edge.NodeName(n.Name).User(), "system:nodes", "system:masters"))
		err := self.Status().Patch(t.Context(), n, client.RawPatch(types.StrategicMergePatchType, []byte(says)))
		mustRefuse(t, name, err, "only coordinator-controller says this of node "+n.Name)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			t.Fatal(err)
		}
		// kube-controller-manager leaves a Ready that is Unknown already.
		base := client.StrategicMergeFrom(n.DeepCopy())
		for i, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown {
				n.Status.Conditions[i] = condition(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
			}
		}
		mustAccept(t, name+": it is found silent", lifecycle.Status().Patch(t.Context(), n, base))
		base = client.MergeFrom(n.DeepCopy())
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		mustAccept(t, name+": its Pods are evicted", lifecycle.Patch(t.Context(), n, base))
	}
}

// TestNodeStatus: what our controllers write into a Node, or go by, the node itself does not write.
func TestNodeStatus(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	const name, refusal, ours = "status-1", "node status-1 can not say", "only coordinator-controller says this of node status-1"
	create(t, admin, node(name, "", nil))
	as := func(user string) client.Client { return cloudtest.Client(t, cloudtest.As(cfg, user, "system:masters")) }
	self, controller := as(edge.NodeName(name).User()), as("system:serviceaccount:kube-system:coordinator-controller")
	plugin := as("system:serviceaccount:kube-flannel:flannel") // whose token each node has
	pod, openYurt := podOn(t, cfg, name), as("system:serviceaccount:kube-system:yurt-manager-nodepool-controller")
	patch := func(c client.Client, status bool, content string) error {
		p := client.RawPatch(types.StrategicMergePatchType, []byte(content))
		if status {
			return c.Status().Patch(t.Context(), node(name, "", nil), p)
		}
		return c.Patch(t.Context(), node(name, "", nil), p)
	}
	attributes := map[string]string{
		"autonomy":             attributePatch("annotations", edge.AnnotationAutonomy, edge.AutonomyOn),
		"a time of autonomy":   attributePatch("annotations", edge.AnnotationAutonomyDuration, "2h"),
		"what its pool gave":   attributePatch("annotations", nodepool.AnnotationAttributes, `{"labels":["a"]}`),
		"taints of its pool":   attributePatch("annotations", nodepool.AnnotationTaints, `[{"key":"quarantine"}]`),
		"what OpenYurt's gave": attributePatch("annotations", nodepool.AnnotationPrevious, `{"labels":{"a":"b"}}`),
		"its Pods' network":    attributePatch("labels", nodepool.LabelHostNetwork, "true"),
		"a coordinator":        attributePatch("labels", edge.LabelCoordinatorNode, "0"),
	}
	const none = `{"metadata":{"annotations":null,"labels":null}}`
	for what, content := range attributes {
		mustRefuse(t, what, patch(self, false, content), refusal)
		mustRefuse(t, what+", by its status", patch(self, true, content), refusal)
		mustRefuse(t, what+", by a Pod of the node", patch(pod, true, content), refusal)
		may := map[string]client.Client{"an administrator": admin, "our controller": controller}
		if strings.Contains(content, "attributes") || strings.Contains(content, "nodepool-taints") { // a record
			const says = "records what node status-1 has"
			mustRefuse(t, what+", by a network plugin", patch(plugin, false, content), says, "kube-flannel:flannel")
			mustRefuse(t, what+", by its status", patch(plugin, true, content), says)
			may["OpenYurt's controller"] = openYurt
		} else {
			may["an administrator's program"] = plugin
		}
		for who, c := range may {
			mustAccept(t, what+", by "+who, patch(c, false, content))
			mustAccept(t, what+", taken away", patch(plugin, false, none))
		}
	}
	for what, content := range attributes {
		mustAccept(t, what+", by an administrator", patch(admin, false, content))
	}
	for kind, reason := range map[corev1.NodeConditionType]string{
		edge.ConditionCloudLinkDown: "x", edge.ConditionEvictionsHeld: "x", edge.ConditionPodsKept: "x",
		corev1.NodeReady: edge.ReasonCloudLinkDown,
	} {
		what := "condition " + string(kind)
		mustRefuse(t, what, patch(self, true, conditionPatch(kind, "Unknown", reason)), ours)
		mustRefuse(t, what+", by a network plugin", patch(plugin, true, conditionPatch(kind, "Unknown", reason)), ours)
		mustAccept(t, what+", by the controller", patch(controller, true, conditionPatch(kind, "Unknown", reason)))
		mustRefuse(t, "another "+what, patch(self, true, conditionPatch(kind, "True", edge.ReasonCloudLinkDown)), ours)
		if kind != corev1.NodeReady { // kubelet writes that one anyway
			without := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, kind)
			mustRefuse(t, "no "+what, patch(self, true, without), ours)
		}
	}
	mustAccept(t, "a plugin's own condition", patch(plugin, true, conditionPatch(corev1.NodeNetworkUnavailable, "False", "x")))

	n := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = append(n.Status.Conditions, condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "x"))
	mustAccept(t, "a status with all of this as it was", self.Status().Update(t.Context(), n))
	mustAccept(t, "kubelet's own Ready", patch(self, true, conditionPatch(corev1.NodeReady, "True", "KubeletReady")))
	for _, key := range []string{edge.AnnotationSettings, edge.AnnotationProgram, "example.org/note"} {
		mustAccept(t, "its annotation "+key, patch(self, false, attributePatch("annotations", key, "x")))
	}
	mustAccept(t, "its label", patch(self, false, attributePatch("labels", "example.org/rack", "7")))

	registers := node("status-2", "", nil)
	mustAccept(t, "a node that registers", self.Create(t.Context(), registers, client.DryRunAll))
	registers.Labels = map[string]string{nodepool.LabelHostNetwork: "true"}
	mustAccept(t, "one that OpenYurt's webhook labels", self.Create(t.Context(), registers, client.DryRunAll))
	registers.Status.Conditions = []corev1.NodeCondition{condition(edge.ConditionEvictionsHeld, corev1.ConditionTrue, "x")}
	mustRefuse(t, "one that is held", self.Create(t.Context(), registers, client.DryRunAll), "says this of node status-2")
	registers = node("status-2", "", map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn})
	mustRefuse(t, "one with autonomy", self.Create(t.Context(), registers, client.DryRunAll), "node status-2 can not say")
	mustAccept(t, "an administrator's", admin.Create(t.Context(), registers, client.DryRunAll))
}
