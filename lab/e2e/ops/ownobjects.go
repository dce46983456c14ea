package ops

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var ownObjectScenarios = []kit.Scenario{{
	Name: "own-objects", Tier: kit.Core, Lab: kit.OnePool, Run: ownObjects,
	Doc: "kubectl at the coordinator shows each node's Node, Pods, ConfigMaps and Events as the cloud has them: from a " +
		"node that is cut off, and after the coordinator came back empty. What is deleted is gone.",
}}

const ownConfig = "own-config"

func ownObjects(t *kit.T) {
	leader := t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	t.DeployWeb()
	site := t.Pool.Coordinator(lab.Operator)
	cut := t.Pool.Follower(leader)
	uid := configuredPod(t, cut)
	t.Figure("boot_to_shown_s", shownAsInTheCloud(t, site, names, 30*time.Second).Seconds())
	shownByKubectl(t, names)
	if _, err := site.CoreV1().ConfigMaps(kit.Namespace).Get(t.Ctx, kit.WebName,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fail("a ConfigMap that no Pod uses is shown: %v", err)
	}
	t.Eventually(10*time.Second, "the Events of the Pod are there", func() error { return eventsShown(t, site, uid) })

	t.Say("something changes")
	t.Scale(int32(t.Config.Nodes))
	t.Eventually(30*time.Second, "Pods are gone", func() error {
		if n := len(t.Seen.LivePods()); n != t.Config.Nodes+1 {
			return fmt.Errorf("%d Pods", n)
		}
		return nil
	})
	shownAsInTheCloud(t, site, names, 60*time.Second)

	t.Say("cutting the WAN link of %s, and starting the coordinator anew", cut)
	t.Cut(cut)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, t.Pool.CoordinatorNode(), lab.Coordinator))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, t.Pool.CoordinatorNode(), lab.Coordinator))
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == cut })
	t.Figure("restart_to_shown_s", shownAsInTheCloud(t, site, others, 30*time.Second).Seconds())
	t.Eventually(10*time.Second, "also what is on "+cut+", which the cloud cannot reach", func() error {
		p, err := site.CoreV1().Pods(kit.Namespace).Get(t.Ctx, ownConfig, metav1.GetOptions{})
		if err == nil && p.UID != uid {
			err = fmt.Errorf("it is another Pod: %s", p.UID)
		}
		if err == nil {
			_, err = site.CoreV1().ConfigMaps(kit.Namespace).Get(t.Ctx, ownConfig, metav1.GetOptions{})
		}
		return err
	})
	t.Heal(cut)
	shownAsInTheCloud(t, site, names, 30*time.Second)

	t.Say("%s leaves the pool", cut)
	relabel(t, cut, "null")
	t.Figure("leave_to_gone_s", t.Eventually(15*time.Second, "nothing of it is shown any more", func() error {
		return nothingShown(t, site, cut)
	}).Seconds())
	shownAsInTheCloud(t, site, others, 10*time.Second)
	relabel(t, cut, `"p1"`)
	shownAsInTheCloud(t, site, names, 15*time.Second)
}

// configuredPod runs a Pod that uses a ConfigMap, on a node. It also makes a ConfigMap that no Pod uses, with the web server's
// name.
func configuredPod(t *kit.T, node string) types.UID {
	for _, name := range []string{ownConfig, kit.WebName} {
		_, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"KEY": "value"},
		}, metav1.CreateOptions{})
		t.Must(err)
	}
	return t.Node(node).RunPod(ownConfig, []string{"sleep", "1000000"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ownConfig},
		}}}
	})
}

// shownAsInTheCloud waits until the coordinator shows the Nodes, their Pods, the ConfigMaps and ServiceAccounts that
// the Pods use, and all Services, exactly as the cloud does.
func shownAsInTheCloud(t *kit.T, site kubernetes.Interface, nodes []string, within time.Duration) time.Duration {
	return t.Eventually(within, "the coordinator shows what the cloud has", func() error {
		for _, resource := range []string{"nodes", "pods", "configmaps", "services", "serviceaccounts"} {
			cloud, err := t.ObjectsAt(t.Cloud, resource)
			if err != nil {
				return err
			}
			shown, err := t.ObjectsAt(site, resource)
			if err != nil {
				return err
			}
			if err := sameShown(resource, nodes, cloud, shown); err != nil {
				return err
			}
		}
		return nil
	})
}

// sameShown compares the objects of these nodes.
func sameShown(resource string, nodes []string, cloud, shown map[string]map[string]any) error {
	return kit.SameShown(resource, cloud, shown, func(o map[string]any) bool {
		meta, _ := o["metadata"].(map[string]any)
		spec, _ := o["spec"].(map[string]any)
		switch name, _ := meta["name"].(string); resource {
		case "nodes":
			return slices.Contains(nodes, name)
		case "pods":
			node, _ := spec["nodeName"].(string)
			return slices.Contains(nodes, node)
		case "services":
			return true
		case "serviceaccounts":
			return meta["namespace"] == kit.Namespace && name == "default"
		default: // what Pods of default use
			return meta["namespace"] == kit.Namespace && name == "kube-root-ca.crt"
		}
	})
}

// shownByKubectl compares what kubectl prints, at a moment when the cloud does not change between its two looks at it.
func shownByKubectl(t *kit.T, nodes []string) {
	for _, resource := range []string{"nodes", "pods"} {
		t.Eventually(20*time.Second, "kubectl get "+resource+" prints the same", func() error {
			return sameByKubectl(t, resource, nodes)
		})
	}
}

func sameByKubectl(t *kit.T, resource string, nodes []string) error {
	var all [2]map[string]map[string]any
	for i, via := range []string{"cloud", "coordinator/p1"} {
		cmd, err := t.Lab.Kubectl(t.Ctx, via, []string{"get", resource, "-A", "-o", "json"})
		if err != nil {
			return err
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("kubectl get %s via %s: %w: %s", resource, via, err, stderr.String())
		}
		if all[i], err = kit.ByName(text); err != nil {
			return err
		}
	}
	return sameShown(resource, nodes, all[0], all[1])
}

// eventsShown expects that the coordinator shows what kubelet has written about a Pod, as the cloud has it.
func eventsShown(t *kit.T, site kubernetes.Interface, pod types.UID) error {
	selector := metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod)}
	shown, err := site.CoreV1().Events(kit.Namespace).List(t.Ctx, selector)
	if err != nil {
		return err
	}
	started := false
	for i := range shown.Items {
		got := &shown.Items[i]
		want, err := t.Cloud.CoreV1().Events(kit.Namespace).Get(t.Ctx, got.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.ResourceVersion = want.ResourceVersion; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("shown is %v, want %v", got, want)
		}
		started = started || got.Reason == "Started"
	}
	if !started {
		return fmt.Errorf("none of %d Events says that it was started", len(shown.Items))
	}
	return nil
}

// relabel puts a node into a pool, or into none (null).
func relabel(t *kit.T, node, pool string) {
	_, err := t.Cloud.CoreV1().Nodes().Patch(t.Ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, edge.LabelNodePool, pool), metav1.PatchOptions{})
	t.Must(err)
}

// nothingShown expects that nothing of a node is shown.
func nothingShown(t *kit.T, site kubernetes.Interface, node string) error {
	nodes, err := t.ObjectsAt(site, "nodes")
	if err != nil {
		return err
	}
	pods, err := site.CoreV1().Pods("").List(t.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	maps, err := t.ObjectsAt(site, "configmaps")
	if err != nil {
		return err
	}
	_, config := maps[kit.Namespace+"/"+ownConfig]
	_, there := nodes["<nil>/"+node]
	if there || config || len(pods.Items) > 0 {
		return fmt.Errorf("its Node is shown: %v, its ConfigMap: %v, %d of its Pods", there, config, len(pods.Items))
	}
	return nil
}
