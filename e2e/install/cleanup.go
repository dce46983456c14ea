package install

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var cleanUpScenarios = []kit.Scenario{{
	Name: "clean-uninstall", Lab: kit.OnePool.AsInstalled(), Run: cleanUninstall,
	Doc: "The chart is uninstalled while one node is cut off and delegated and another is autonomous. No taint, " +
		"condition, toleration, annotation or finalizer is left, and the node takes Pods again when its link is back.",
}}

// keptFor is for how long Pods of the cloud's node are kept: longer than the scenario, so that it shows.
const keptFor = "1h"

func cleanUninstall(t *kit.T) {
	leader := t.Pool.SettledAway()
	helm(t, "upgrade", "--install", "--take-ownership", "--force-conflicts", "--wait", "--timeout=2m")
	cloud := cloudNode(t)
	t.Kubectls([][]string{
		{"patch", "nodepool", "p1", "--type=merge", `--patch={"spec":{"labels":{"site":"here"},"annotations":{"site":"here"}}}`},
		{"annotate", "node", cloud, edge.AnnotationAutonomyDuration + "=" + keptFor},
	})
	t.Eventually(30*time.Second, "the pool's nodes bear its label, and Pods of "+cloud+" are kept", func() error {
		for _, name := range t.Pool.Nodes() {
			if n := node(t, name); n.Labels["site"] != "here" {
				return fmt.Errorf("%s has %v", name, n.Labels)
			}
		}
		if len(marked(t)) == 0 {
			return errors.New("no Pod is marked")
		}
		return nil
	})

	cutOff := t.Pool.Follower(leader)
	t.Say("cutting %s off from the cloud, and removing everything as docs/install.md says", cutOff)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	r := t.NewReader()
	r.Read(beforeUninstall)
	t.Eventually(20*time.Second, cutOff+", in no pool now, is not tainted: nobody could speak for it", func() error {
		if n := node(t, cutOff); slices.Contains(traces(n), taintTrace) {
			return fmt.Errorf("it has %v", traces(n))
		}
		return nil
	})
	t.Cloud.MakePool("left") // by somebody, at the last moment, with a node that is cut off and tainted
	t.Kubectls([][]string{
		{"label", "node", cutOff, edge.LabelNodePool + "=left"},
		{"taint", "node", cutOff, "--overwrite", edge.TaintUnschedulable + ":" + string(corev1.TaintEffectNoSchedule)},
	})
	t.Eventually(30*time.Second, "it has our finalizer", func() error {
		if f := finalizers(t, "left"); len(f) == 0 {
			return errors.New("it has none")
		}
		return nil
	})
	t.Eventually(t.Config.Timing.Grace+time.Minute, "nobody hears of "+cutOff+", which is still tainted", func() error {
		n := node(t, cutOff)
		c := condition(n, edge.ConditionCloudLinkDown)
		if c != corev1.ConditionUnknown || !slices.Contains(traces(n), taintTrace) {
			return fmt.Errorf("%s=%s, %v", edge.ConditionCloudLinkDown, c, traces(n))
		}
		return nil
	})

	began := time.Now()
	helm(t, "uninstall", "--wait", "--timeout=5m")
	t.Figure("helm_uninstall_s", time.Since(began).Seconds())
	t.Kubectls([][]string{{"label", "node", cutOff, edge.LabelNodePool + "-"}}) // who has put it there takes it away
	nothingLeft := func() error {
		for _, name := range append(t.Pool.Nodes(), cloud) {
			if left := traces(node(t, name)); len(left) > 0 {
				return fmt.Errorf("on %s there is left %v", name, left)
			}
		}
		if left := marked(t); len(left) > 0 {
			return fmt.Errorf("there are Pods with our annotations: %v", left)
		}
		return nil
	}
	t.Must(nothingLeft())
	if f := finalizers(t, "left"); len(f) > 0 {
		t.Fail("a NodePool has the finalizers %v", f)
	}
	t.Eventually(30*time.Second, "a pool can be deleted: API servers forget a policy after a while", func() error {
		return t.Cloud.Objects.Resource(lab.NodePools).Delete(t.Ctx, "left", metav1.DeleteOptions{})
	})
	t.Kubectls([][]string{
		{"delete", "nodepools", "--all", "--timeout=1m"},
		{"annotate", "node", cloud, edge.AnnotationAutonomyDuration + "-"},
	})
	t.Eventually(60*time.Second, "what is left is what the documentation says", func() error {
		return leftAre(t, leftByHelm, false)
	})
	r.Read(cleanUp)
	t.Eventually(60*time.Second, "nothing is left", func() error { return leftAre(t, nil, true) })

	t.Heal(cutOff)
	t.Eventually(time.Minute, cutOff+" is Ready again, and takes Pods", func() error {
		n := node(t, cutOff)
		if condition(n, corev1.NodeReady) != corev1.ConditionTrue || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("it has %v, %v", n.Spec.Taints, n.Status.Conditions)
		}
		lease, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, cutOff, metav1.GetOptions{})
		if err == nil && len(lease.Annotations) > 0 {
			err = fmt.Errorf("its Lease has %v", lease.Annotations)
		}
		return err
	})
	t.Hold(t.Config.Timing.Grace, "nothing comes back")
	t.Must(nothingLeft())
}

// cloudNode returns the cloud's own node, which is in no pool.
func cloudNode(t *kit.T) string {
	all, err := t.Cloud.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{LabelSelector: "!" + edge.LabelNodePool})
	t.Must(err)
	if len(all.Items) != 1 {
		t.Fail("%d nodes are in no pool", len(all.Items))
	}
	return all.Items[0].Name
}

func node(t *kit.T, name string) *corev1.Node {
	n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{})
	t.Must(err)
	return n
}

func condition(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

const taintTrace = "taint " + edge.TaintUnschedulable

// traces are what a Node has of ours, without the annotation that somebody else has given it.
func traces(n *corev1.Node) []string {
	var found []string
	for _, taint := range n.Spec.Taints {
		if ourNames.MatchString(taint.Key) {
			found = append(found, "taint "+taint.Key)
		}
	}
	for kind, attributes := range map[string]map[string]string{"label": n.Labels, "annotation": n.Annotations} {
		for key := range attributes {
			if key == edge.LabelExcludeDisruption || key == "site" ||
				ourNames.MatchString(key) && key != edge.AnnotationAutonomyDuration {
				found = append(found, kind+" "+key)
			}
		}
	}
	ours := []corev1.NodeConditionType{edge.ConditionCloudLinkDown, edge.ConditionEvictionsHeld, edge.ConditionPodsKept}
	for _, c := range n.Status.Conditions {
		if slices.Contains(ours, c.Type) || c.Reason == edge.ReasonCloudLinkDown {
			found = append(found, fmt.Sprintf("condition %s=%s", c.Type, c.Status))
		}
	}
	slices.Sort(found)
	return found
}

// marked returns the Pods that bear annotations of ours.
func marked(t *kit.T) []string {
	all, err := t.Cloud.CoreV1().Pods(metav1.NamespaceAll).List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	var names []string
	for _, p := range all.Items {
		for key := range p.Annotations {
			if strings.Contains(key, "openyurt.io/") {
				names = append(names, p.Namespace+"/"+p.Name+" "+key)
			}
		}
	}
	return names
}

func finalizers(t *kit.T, pool string) []string {
	o, err := t.Cloud.Objects.Resource(lab.NodePools).Get(t.Ctx, pool, metav1.GetOptions{})
	t.Must(err)
	return o.GetFinalizers()
}
