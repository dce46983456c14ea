package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/edge"
)

var tainted = []corev1.Taint{
	{Key: "b", Value: "1", Effect: corev1.TaintEffectNoExecute}, {Key: "a", Effect: corev1.TaintEffectNoSchedule},
	{Key: edge.TaintUnschedulable, Effect: corev1.TaintEffectNoSchedule},
}

// TestTheYurtAppSetIsSmall: etcd takes 1.5 MB, and every watcher reads each version. What is special to most pools, their names
// and the nodes that they prefer, is not in it.
func TestTheYurtAppSetIsSmall(t *testing.T) {
	var pools []listed
	for i := range 10_000 {
		name := fmt.Sprintf("pool-%05d", i)
		s := v1alpha1.CoordinatorSettings{PreferredNodes: []string{"the-node-with-the-battery-of-" + name}}
		var taints []corev1.Taint
		if i%2 == 1 {
			taints = tainted
		}
		its := askedOf("", taints, s)
		pools = append(pools, listed{pool: edge.PoolName(name), asked: &its, wants: marks{"1", its.key()}})
	}
	asked, most := asks(pools)
	if len(asked) != 2 || most != 1 {
		t.Fatalf("%d different settings, %d slots", len(asked), most)
	}
	for _, slot := range edge.Slots() {
		config := Config{Program: Program{Image: image, Release: "v1.0.0", Kubernetes: "v1.36.3"}}.completed()
		app, err := AppSet(config, slot, asked...)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(toJSON(app)); n > 100<<10 || len(app.Spec.Workload.WorkloadTweaks) != 3 {
			t.Errorf("slot %d: %d bytes, %d tweaks", slot, n, len(app.Spec.Workload.WorkloadTweaks))
		}
		if strings.Contains(toJSON(app), "battery") {
			t.Errorf("slot %d: it has a node's name", slot)
		}
	}
}

// TestTheOrderOfTaintsDoesNotMatter to what a pool asks, nor do settings that do not change the Pod.
func TestTheOrderOfTaintsDoesNotMatter(t *testing.T) {
	settings := manySettings()
	a := askedOf("", tainted, settings)
	settings.Create, settings.MinNodes, settings.Replicas = v1alpha1.CreateAlways, ptr.To[int32](1), ptr.To[int32](2)
	settings.PreferredNodes = []string{"n1"}
	if b := askedOf("", []corev1.Taint{tainted[2], tainted[1], tainted[0]}, settings); a.key() != b.key() {
		t.Errorf("%+v\n%+v", a, b)
	}
	settings.ExtraArgs = append(slices.Clone(settings.ExtraArgs), "--more=1")
	config := Config{Program: Program{Image: "x", Release: "v1.0.0", Kubernetes: "v1.36.3"}}.completed()
	if b := askedOf("", tainted, settings); a.key() == b.key() || a.digestIn(config, 0) == b.digestIn(config, 0) {
		t.Error("an argument makes no difference")
	}
	if b := askedOf("v1.2.3", tainted, manySettings()); a.key() == b.key() || a.digestIn(config, 0) == b.digestIn(config, 0) {
		t.Error("a version makes no difference")
	}
}

// TestTweaks: with them the template becomes the Pod of a pool that asks this, and its digest is on the Pod.
func TestTweaks(t *testing.T) {
	config := Config{Program: Program{
		Image: "x", Release: "v1.0.0", Kubernetes: "v1.36.3", PullSecrets: []string{"pull"},
	}}.completed()
	config.Settings.Verbosity = ptr.To[int32](2)
	asked := []Asked{
		askedOf("", tainted, config.Settings), askedOf("v1.2.3", nil, manySettings()), askedOf("", nil,
			v1alpha1.CoordinatorSettings{}),
		askedOf("", nil, config.Settings),
	}
	for _, slot := range edge.Slots() {
		app, err := AppSet(config, slot, asked...)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(toJSON(app), edge.TaintUnschedulable) {
			t.Error("it would be put on a node whose link is down")
		}
		for _, a := range asked {
			pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{
				edge.LabelCoordinators: "3", edge.LabelCoordinatorSettings: a.key(),
			}}}
			w := appset.Render(app, []*v1beta2.NodePool{pool}, nil)[0]
			var d appsv1.Deployment
			if w.Err != nil {
				t.Fatal(w.Err)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.Object.Object, &d); err != nil {
				t.Fatal(err)
			}
			want := podSpec(config, slot, a)
			want.Volumes[0].Secret.SecretName = edge.PoolName("p").CoordinatorSecretIn(slot)
			is := d.Spec.Template.Spec
			delete(is.NodeSelector, edge.LabelNodePool)
			if !equality.Semantic.DeepEqual(is, want) {
				t.Errorf("slot %d:\n%s\n%s", slot, toJSON(is), toJSON(want))
			}
			if got := d.Spec.Template.Annotations[annotationDigest]; got != a.digestIn(config, slot) {
				t.Errorf("slot %d: the digest is %s", slot, got)
			}
			if d.Spec.Template.Labels[edge.LabelNodePool] != "p" {
				t.Errorf("slot %d: labels are %v", slot, d.Spec.Template.Labels)
			}
		}
	}
}

// TestEachTweakFitsTheSpecAlone: OpenYurt's webhook tries it on a Deployment without metadata, where the pool has no name.
func TestEachTweakFitsTheSpecAlone(t *testing.T) {
	asked := []Asked{{Taints: tainted}, {}, {Settings: manySettings()}}
	app, err := AppSet(Config{Program: Program{Image: "x", Release: "v1.0.0", Kubernetes: "v1.36.3"}}.completed(), 0, asked...)
	if err != nil {
		t.Fatal(err)
	}
	for _, tweak := range app.Spec.Workload.WorkloadTweaks {
		text := strings.ReplaceAll(toJSON(tweak.Tweaks.Patches), string(placeholder), "")
		patch, err := jsonpatch.DecodePatch([]byte(strings.ReplaceAll(text, `"operation"`, `"op"`)))
		if err != nil {
			t.Fatal(err)
		}
		bare := appsv1.Deployment{Spec: app.Spec.Workload.WorkloadTemplate.DeploymentTemplate.Spec}
		content, err := patch.Apply([]byte(toJSON(bare)))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal(content, &bare); err != nil {
			t.Fatal(err)
		}
		for key, value := range bare.Spec.Template.Labels {
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				t.Errorf("label %s=%s: %v", key, value, wrong)
			}
		}
		name := bare.Spec.Template.Spec.Volumes[0].Secret.SecretName
		if all := len(tweak.NodePoolSelector.MatchLabels) == 0; all && name != "yurt-coordinator--certs" {
			t.Errorf("the Secret is %s", name)
		}
	}
}

func TestNextStatus(t *testing.T) {
	ok := finding{OK: true, Reason: ReasonDeployed}
	want := wantedStatus{pending: ok, certs: finding{Reason: ReasonNotScheduled}, ready: finding{Reason: ReasonNoPod}}
	at := func(m int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(m) * time.Minute)) }
	status, changed, transitions := next(v1alpha1.YurtCoordinatorStatus{}, 1, want, at(0))
	if !changed || len(transitions) != 0 || len(status.Conditions) != 5 {
		t.Errorf("at first: %t, %v, %+v", changed, transitions, status)
	}
	if _, changed, _ = next(status, 1, want, at(1)); changed {
		t.Error("time is a change")
	}
	want.certs = finding{OK: true, Reason: ReasonIssued}
	status, changed, transitions = next(status, 1, want, at(2))
	certs := status.Conditions[1]
	if !changed || len(transitions) != 1 || transitions[0].Type != v1alpha1.YurtCoordinatorCertsReady ||
		certs.LastTransitionTime != at(2) || status.Conditions[0].LastTransitionTime != at(0) {
		t.Errorf("certificates: %t, %v, %+v", changed, transitions, status)
	}
	want.certs.Message = "other words"
	status, changed, transitions = next(status, 2, want, at(3))
	certs = status.Conditions[1]
	if !changed || len(transitions) != 0 || certs.LastTransitionTime != at(2) || certs.LastProbeTime != at(3) ||
		status.ObservedGeneration != 2 || certs.ObservedGeneration != 2 {
		t.Errorf("other words: %t, %v, %+v", changed, transitions, status)
	}
	want.delegated = []string{"n1"}
	if status, changed, _ = next(status, 2, want, at(4)); !changed || len(status.DelegatedNodes) != 1 {
		t.Errorf("a node's link: %t, %+v", changed, status)
	}
}

func TestCurrentPod(t *testing.T) {
	pod := func(name string, after time.Duration, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(after))}}
		if change != nil {
			change(&p)
		}
		return p
	}
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: start} }
	evicted := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	for want, pods := range map[string][]corev1.Pod{
		"":  {pod("x", 0, leaving), pod("y", 0, evicted)},
		"a": {pod("x", time.Hour, leaving), pod("a", 0, nil)},
		"b": {pod("b", time.Hour, nil), pod("a", 0, nil)},
		"c": {pod("a", 0, nil), pod("c", 0, nil), pod("b", 0, nil)},
	} {
		if p := current(pods); want == "" && p != nil || want != "" && (p == nil || p.Name != want) {
			t.Errorf("%v, want %s", p, want)
		}
	}
}

func TestReadiness(t *testing.T) {
	pod := func(node, image string, conditions ...corev1.PodCondition) *corev1.Pod {
		return &corev1.Pod{
			Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: containerName, Image: image}}},
			Status: corev1.PodStatus{Conditions: conditions},
		}
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	full := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "3 nodes are tainted"}
	for _, c := range []struct {
		pod    *corev1.Pod
		left   string
		reason string
		says   string
	}{
		{nil, "", ReasonNoPod, "no Pod"},
		{pod("", "i", full), "", ReasonNoNode, "3 nodes are tainted"},
		{pod("n", "i"), "", ReasonPodNotReady, "describe pod"},
		{pod("n", "i", ready), "", ReasonServing, "on node n"},
		{pod("n", "i", ready), "is in pool p2", ReasonNodeLeftPool, "node n is in pool p2"},
		{pod("n", "i"), "is in pool p2", ReasonNodeLeftPool, "node n is in pool p2"},
	} {
		f := readiness(c.pod, 0, c.left)
		if f.Reason != c.reason || f.OK != (c.reason == ReasonServing) || !strings.Contains(f.Message, c.says) {
			t.Errorf("%+v, want %s", f, c.reason)
		}
	}
}

// Coordinators verify kubelets by what the Secret has, which follows the authority; and they know no ServiceAccounts.
func TestKubeletsAreVerified(t *testing.T) {
	w := newWorld(t)
	bundle, broken := encode(w.signerCert.Raw), error(nil)
	w.r.cfg.KubeletAuthority = func() ([]byte, error) { return bundle, broken }
	const flag = "--kubelet-certificate-authority=/etc/yurt-coordinator/certs/kubelet-ca.crt"
	if args := container(w.r.cfg, Asked{}).Args; !slices.Contains(args, flag) {
		t.Errorf("it is started with %q", args)
	}
	args := fmt.Sprint(container(Config{}, Asked{}).Args, container(w.r.cfg, Asked{}).Args)
	if strings.Count(args, "--kubelet-certificate-authority") != 1 {
		t.Errorf("without and with: %s", args)
	}
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(5)
	mounted := func() string {
		var s corev1.Secret
		w.get(edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret(), &s)
		return string(s.Data[keyKubeletCA])
	}
	if mounted() != string(bundle) {
		t.Errorf("the Secret has %q", mounted())
	}
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	broken = errors.New("no such file")
	if err := w.round(); err == nil || !strings.Contains(err.Error(), "authority of kubelets: no such file") {
		t.Errorf("with an authority that can't be read: %v", err)
	}
	was := string(bundle)
	w.makeSigner()
	bundle, broken = append(bundle, encode(w.signerCert.Raw)...), nil
	w.turns(2)
	if mounted() == was || mounted() != string(bundle) {
		t.Error("the Secret has the authority of before")
	}
}

// TestProbes: kubelet shows no certificate, so it does not ask where one is demanded.
// TestANewPodWaitsForNoOld: one on a dead node stays for as long as its Node does.
func TestANewPodWaitsForNoOld(t *testing.T) {
	s := template(Config{Program: Program{Image: "i", Release: "v1.0.0"}}.completed(), 0).Spec.Strategy
	if u := s.RollingUpdate; s.Type != appsv1.RollingUpdateDeploymentStrategyType || u.MaxUnavailable.IntValue() != 1 ||
		u.MaxSurge.IntValue() != 0 {
		t.Errorf("the Deployment's strategy is %+v", s)
	}
}

func TestProbes(t *testing.T) {
	spec := podSpec(Config{Program: Program{Image: "i", Release: "v1.0.0"}}.completed(), 0, Asked{})
	container := spec.Containers[0]
	if !spec.HostNetwork {
		t.Error("127.0.0.1 of a Pod's own network is not kubelet's")
	}
	for path, p := range map[string]*corev1.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		get := p.HTTPGet
		if get.Host != "127.0.0.1" || get.Port.IntValue() != edge.PortCoordinatorProbes || get.Path != path ||
			get.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s: %+v", path, get)
		}
	}
	ports := map[int32]string{}
	for _, p := range container.Ports {
		ports[p.HostPort] = p.HostIP
	}
	_, links := ports[edge.PortCoordinatorLinks]
	if len(ports) != 3 || !links || ports[edge.PortCoordinator] != "" || ports[edge.PortCoordinatorProbes] != "127.0.0.1" {
		t.Errorf("ports: %v", ports)
	}
}

// TestARemovalWaitsForTheWorkload, whichever controller has made it: of its labels only that of its pool is sure.
func TestARemovalWaitsForTheWorkload(t *testing.T) {
	w := newWorld(t)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: edge.NamespaceSystem, Name: "yurt-coordinator-p1-x7k2p",
		Labels: map[string]string{edge.LabelApp: edge.AppCoordinator, edge.LabelWorkloadPool: "p1"},
	}}
	w.create(d)
	if waits, err := w.r.remains(t.Context(), "p1"); err != nil || !strings.Contains(waits, d.Name) {
		t.Errorf("it waits for %q, %v", waits, err)
	}
	if waits, err := w.r.remains(t.Context(), "p2"); err != nil || waits != "" {
		t.Errorf("another pool's waits for %q, %v", waits, err)
	}
	w.delete(d)
	w.create(&v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p1", Labels: map[string]string{edge.LabelCoordinators: "1"}}})
	if waits, err := w.r.remains(t.Context(), "p1"); err != nil || !strings.Contains(waits, edge.LabelCoordinators) {
		t.Errorf("with the label it waits for %q, %v", waits, err)
	}
	w.delete(&v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p1"}})
	if waits, err := w.r.remains(t.Context(), "p1"); err != nil || waits != "" {
		t.Errorf("without one it waits for %q, %v", waits, err)
	}
}
