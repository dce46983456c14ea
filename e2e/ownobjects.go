package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var ownObjectScenarios = []Scenario{{
	Name: "own-objects", Quick: true, Lab: pool, run: ownObjects,
	Doc: "the operators' kubectl shows each node's Node, Pods, ConfigMaps and Events at the coordinator as the cloud has them: " +
		"also from a node that is cut off, after the coordinator came back empty, and gone when gone",
}}

const ownConfig = "own-config"

func ownObjects(t *T) {
	leader := t.settled(30 * time.Second)
	names := t.nodeNames()
	t.deployWeb()
	site := t.coordinator(lab.Operator)
	cut := t.follower(leader)
	uid := t.configuredPod(cut)
	t.figure("boot_to_shown_s", t.shownAsInTheCloud(site, names, 30*time.Second).Seconds())
	t.shownByKubectl(names)
	if _, err := site.CoreV1().ConfigMaps(namespace).Get(t.ctx, webName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.fail("a ConfigMap that no Pod uses is shown: %v", err)
	}
	t.eventually(10*time.Second, "the Events of the Pod are there", func() error { return t.eventsShown(site, uid) })

	t.say("something changes")
	t.scale(int32(t.cfg.Nodes))
	t.eventually(30*time.Second, "Pods are gone", func() error {
		if n := len(t.seen.livePods()); n != t.cfg.Nodes+1 {
			return fmt.Errorf("%d Pods", n)
		}
		return nil
	})
	t.shownAsInTheCloud(site, names, 60*time.Second)

	t.say("cutting the WAN link of %s, and starting the coordinator anew", cut)
	t.must(t.lab.Cut(t.ctx, lab.WAN, cut, wire.Drop))
	t.must(t.lab.Node(t.ctx, lab.Kill, t.coordinatorNode(), lab.Coordinator))
	t.must(t.lab.Node(t.ctx, lab.Start, t.coordinatorNode(), lab.Coordinator))
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == cut })
	t.figure("restart_to_shown_s", t.shownAsInTheCloud(site, others, 30*time.Second).Seconds())
	t.eventually(10*time.Second, "also what is on "+cut+", which the cloud cannot reach", func() error {
		p, err := site.CoreV1().Pods(namespace).Get(t.ctx, ownConfig, metav1.GetOptions{})
		if err == nil && p.UID != uid {
			err = fmt.Errorf("it is another Pod: %s", p.UID)
		}
		if err == nil {
			_, err = site.CoreV1().ConfigMaps(namespace).Get(t.ctx, ownConfig, metav1.GetOptions{})
		}
		return err
	})
	t.must(t.lab.Heal(t.ctx, lab.WAN, cut))
	t.shownAsInTheCloud(site, names, 30*time.Second)

	t.say("%s leaves the pool", cut)
	t.relabel(cut, "null")
	t.figure("leave_to_gone_s", t.eventually(15*time.Second, "nothing of it is shown any more", func() error {
		return t.nothingShown(site, cut)
	}).Seconds())
	t.shownAsInTheCloud(site, others, 10*time.Second)
	t.relabel(cut, `"p1"`)
	t.shownAsInTheCloud(site, names, 15*time.Second)
}

// configuredPod runs a Pod on a node that uses a ConfigMap; another one is used by nobody, but has the web server's name.
func (t *T) configuredPod(node string) types.UID {
	for _, name := range []string{ownConfig, webName} {
		_, err := t.cloud.CoreV1().ConfigMaps(namespace).Create(t.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"KEY": "value"},
		}, metav1.CreateOptions{})
		t.must(err)
	}
	from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: ownConfig},
	}}
	p, err := t.cloud.CoreV1().Pods(namespace).Create(t.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: ownConfig},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: "c", Image: webImage, Command: []string{"sleep", "1000000"}, EnvFrom: []corev1.EnvFromSource{from},
			}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	return p.UID
}

// objectsAt are a server's objects of a resource, by namespace and name, as a kubectl that asks for JSON gets them; all but
// the resourceVersion, which is each server's own.
func (t *T) objectsAt(server kubernetes.Interface, resource string) (map[string]map[string]any, error) {
	path := "/api/v1/" + resource
	if resource == endpointSlices.resource {
		path = endpointSlices.path
	}
	text, err := server.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
		DoRaw(t.ctx)
	if err != nil {
		return nil, err
	}
	return byName(text)
}

func byName(text []byte) (map[string]map[string]any, error) {
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	all := map[string]map[string]any{}
	for _, o := range list.Items {
		meta, _ := o["metadata"].(map[string]any)
		delete(meta, "resourceVersion")
		all[fmt.Sprint(meta["namespace"], "/", meta["name"])] = o
	}
	return all, nil
}

// shownAsInTheCloud waits until the coordinator shows the Nodes, their Pods, what of the ConfigMaps and ServiceAccounts the Pods
// use, and all Services, exactly as the cloud does.
func (t *T) shownAsInTheCloud(site kubernetes.Interface, nodes []string, within time.Duration) time.Duration {
	return t.eventually(within, "the coordinator shows what the cloud has", func() error {
		for _, resource := range []string{"nodes", "pods", "configmaps", "services", "serviceaccounts"} {
			cloud, err := t.objectsAt(t.cloud, resource)
			if err != nil {
				return err
			}
			shown, err := t.objectsAt(site, resource)
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

// sameShown compares what is of these nodes.
func sameShown(resource string, nodes []string, cloud, shown map[string]map[string]any) error {
	of := func(o map[string]any) bool {
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
			return meta["namespace"] == namespace && name == "default"
		default: // what Pods of default use
			return meta["namespace"] == namespace && name == "kube-root-ca.crt"
		}
	}
	n := 0
	for name, o := range cloud {
		if !of(o) {
			continue
		}
		n++
		if there, ok := shown[name]; !ok {
			return fmt.Errorf("%s %s is not shown", resource, name)
		} else if !reflect.DeepEqual(o, there) {
			return fmt.Errorf("%s %s is not shown as it is: %s", resource, name, firstDifference("", there, o))
		}
	}
	for name, o := range shown {
		if _, ok := cloud[name]; !ok {
			return fmt.Errorf("%s %s is shown, and is gone: %v", resource, name, o["metadata"])
		}
	}
	if n == 0 {
		return fmt.Errorf("there are no %s to compare", resource)
	}
	return nil
}

// firstDifference names one field in which two values as of JSON differ.
func firstDifference(path string, shown, is any) string {
	a, isMap := shown.(map[string]any)
	b, areMaps := is.(map[string]any)
	if !isMap || !areMaps {
		return fmt.Sprintf("%s is shown as %v, and is %v", path, shown, is)
	}
	for key := range a {
		if _, there := b[key]; !there {
			return fmt.Sprintf("%s.%s is shown, and is not there", path, key)
		}
	}
	for key := range b {
		if !reflect.DeepEqual(a[key], b[key]) {
			return firstDifference(path+"."+key, a[key], b[key])
		}
	}
	return "nothing differs"
}

// shownByKubectl compares what kubectl prints, at a moment when the cloud stands still between the two looks at it.
func (t *T) shownByKubectl(nodes []string) {
	for _, resource := range []string{"nodes", "pods"} {
		t.eventually(20*time.Second, "kubectl get "+resource+" prints the same", func() error {
			return t.sameByKubectl(resource, nodes)
		})
	}
}

func (t *T) sameByKubectl(resource string, nodes []string) error {
	var all [2]map[string]map[string]any
	for i, via := range []string{"cloud", "coordinator/p1"} {
		cmd, err := t.lab.Kubectl(t.ctx, via, []string{"get", resource, "-A", "-o", "json"})
		if err != nil {
			return err
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("kubectl get %s via %s: %w: %s", resource, via, err, stderr.String())
		}
		if all[i], err = byName(text); err != nil {
			return err
		}
	}
	return sameShown(resource, nodes, all[0], all[1])
}

// eventsShown expects that the coordinator shows what kubelet has written about a Pod, as the cloud has it.
func (t *T) eventsShown(site kubernetes.Interface, pod types.UID) error {
	selector := metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod)}
	shown, err := site.CoreV1().Events(namespace).List(t.ctx, selector)
	if err != nil {
		return err
	}
	started := false
	for i := range shown.Items {
		got := &shown.Items[i]
		want, err := t.cloud.CoreV1().Events(namespace).Get(t.ctx, got.Name, metav1.GetOptions{})
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

// relabel puts a node into a pool, or none (null).
func (t *T) relabel(node, pool string) {
	_, err := t.cloud.CoreV1().Nodes().Patch(t.ctx, node, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, edge.LabelNodePool, pool), metav1.PatchOptions{})
	t.must(err)
}

// nothingShown expects that nothing of a node is shown.
func (t *T) nothingShown(site kubernetes.Interface, node string) error {
	nodes, err := t.objectsAt(site, "nodes")
	if err != nil {
		return err
	}
	pods, err := site.CoreV1().Pods("").List(t.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	maps, err := t.objectsAt(site, "configmaps")
	if err != nil {
		return err
	}
	_, config := maps[namespace+"/"+ownConfig]
	_, there := nodes["<nil>/"+node]
	if there || config || len(pods.Items) > 0 {
		return fmt.Errorf("its Node is shown: %v, its ConfigMap: %v, %d of its Pods", there, config, len(pods.Items))
	}
	return nil
}
