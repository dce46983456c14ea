package lab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/edge"
)

// coordinatorPod is a Pod of a coordinator that was made so many seconds after a time.
func coordinatorPod(name, node string, made int, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: edge.NamespaceSystem, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(made), 0)),
	}}
	p.Spec.NodeName = node
	if change != nil {
		change(p)
	}
	return p
}

func TestCoordinatorAmong(t *testing.T) {
	goes := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)} }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	other := coordinatorPod("other", "p2-n1", 3, nil)
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		want string // empty: none
	}{
		{"none", nil, ""},
		{"another pool's", []*corev1.Pod{other}, ""},
		{"not scheduled", []*corev1.Pod{coordinatorPod("a", "", 1, nil)}, ""},
		{"one", []*corev1.Pod{other, coordinatorPod("a", "p1-n3", 1, nil)}, "p1-n3"},
		{"one that goes, and its successor",
			[]*corev1.Pod{coordinatorPod("a", "p1-n1", 2, goes), coordinatorPod("b", "p1-n2", 1, nil)}, "p1-n2"},
		{"the same the other way round",
			[]*corev1.Pod{coordinatorPod("b", "p1-n2", 1, nil), coordinatorPod("a", "p1-n1", 2, goes)}, "p1-n2"},
		{"one that failed, and its successor",
			[]*corev1.Pod{coordinatorPod("a", "p1-n1", 2, failed), coordinatorPod("b", "p1-n2", 1, nil)}, "p1-n2"},
		{"one that goes, alone", []*corev1.Pod{coordinatorPod("a", "p1-n1", 1, goes)}, "p1-n1"},
		{"two: the younger", []*corev1.Pod{coordinatorPod("a", "p1-n1", 1, nil), coordinatorPod("b", "p1-n2", 2, nil)}, "p1-n2"},
	} {
		got, found := coordinatorAmong(tt.pods, (Config{Pools: 2, Nodes: 3}).places(), 1)
		if found != (tt.want != "") || (found && string(got.name()) != tt.want) {
			t.Errorf("%s: %s, %v; want %q", tt.name, got.name(), found, tt.want)
		}
	}
}

// installedLab is one whose cloud has these Pods and Secrets.
func installedLab(pods []*corev1.Pod, client *fake.Clientset) *Lab {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range pods {
		_ = index.Add(p) // the key function knows Pods
	}
	l := &Lab{
		cfg: Config{Name: "x", Pools: 2, Nodes: 3, Kubelet: Real, Installed: true}, all: (Config{Pools: 2, Nodes: 3}).places(),
		accesses: map[int][]byte{},
	}
	l.watching.Store(&watcher{client: client, coordinators: corelisters.NewPodLister(index)})
	return l
}

// Clients are told where a coordinator is now, whoever started it, and errors as text.
func TestCoordinatorIsAsked(t *testing.T) {
	l := installedLab([]*corev1.Pod{coordinatorPod("a", "p2-n3", 1, nil)}, fake.NewClientset())
	c := newClient(t.TempDir())
	serve := func(l *Lab) {
		mux := http.NewServeMux()
		s := &server{lab: l, log: newSteps()}
		s.log.end(nil)
		s.coordinatorRoutes(mux)
		c.http = clientOf(t, mux)
	}
	serve(l)
	if node, err := c.Coordinator(t.Context(), 2); err != nil || node != "p2-n3" {
		t.Errorf("pool 2: %q, %v", node, err)
	}
	for pool, want := range map[int]string{
		1: "no Pod of a coordinator is on a node of pool p1", 3: `no pool "3"`, 0: `no pool "0"`,
	} {
		if node, err := c.Coordinator(t.Context(), pool); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pool %d: %q, %v; want %s", pool, node, err, want)
		}
	}
	serve(&Lab{cfg: Config{Pools: 2, Nodes: 3}, all: (Config{Pools: 2, Nodes: 3}).places()})
	if node, err := c.Coordinator(t.Context(), 2); err != nil || node != "p2-n1" {
		t.Errorf("not installed, pool 2: %q, %v", node, err)
	}
	if _, err := c.Access(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "only an installed lab") {
		t.Errorf("not installed, the operators' access: %v", err)
	}
}

// The operators' kubeconfig is the cloud's of now, and the one before while the cloud does not answer.
func TestAccessOutlivesTheCloud(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: edge.NamespaceSystem, Name: edge.PoolName("p1").KubeconfigSecret(),
	}}
	client := fake.NewClientset(secret)
	l := installedLab(nil, client)
	secrets := client.CoreV1().Secrets(edge.NamespaceSystem)
	if _, err := l.access(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "no key kubeconfig") {
		t.Errorf("an empty Secret: %v", err)
	}
	for _, content := range []string{"first", "renewed"} {
		secret.Data = map[string][]byte{accessKey: []byte(content)}
		if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got, err := l.access(t.Context(), 1); err != nil || string(got) != content {
			t.Errorf("%q, %v; want %s", got, err, content)
		}
	}
	if err := secrets.Delete(t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := l.access(t.Context(), 1); err != nil || string(got) != "renewed" {
		t.Errorf("with the cloud gone: %q, %v", got, err)
	}
	if _, err := l.access(t.Context(), 2); err == nil {
		t.Error("a pool that never had one has a kubeconfig")
	}
}

func TestNotReady(t *testing.T) {
	condition := func(kind, status, reason string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": "because"}
	}
	for _, tt := range []struct {
		name       string
		conditions []any
		want       string // in the error; empty: Ready
	}{
		{"nothing said", nil, "coordinator-controller has not seen it"},
		{"ready", []any{condition("Pending", "False", ""), condition("Ready", "True", "")}, ""},
		{"not ready", []any{condition("Ready", "False", "PodNotReady")}, "Ready=False PodNotReady: because"},
		{"pending", []any{condition("Pending", "True", "TooFewNodes")}, "Pending=True TooFewNodes: because"},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": tt.conditions}}}
		err := notReady(o)
		if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestPoolManifests(t *testing.T) {
	var got []string
	for _, document := range bytes.Split(poolManifests(Config{Pools: 2, Nodes: 3}), []byte("---\n"))[1:] {
		var o struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
			Spec             map[string]string
		}
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatal(err)
		}
		got = append(got, o.APIVersion+" "+o.Kind+" "+o.Metadata.Name+" "+o.Spec["type"]+o.Spec["nodePool"])
	}
	want := []string{
		"apps.openyurt.io/v1beta2 NodePool p1 Edge", "apps.openyurt.io/v1alpha1 YurtCoordinator p1 p1",
		"apps.openyurt.io/v1beta2 NodePool p2 Edge", "apps.openyurt.io/v1alpha1 YurtCoordinator p2 p2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The cloud's node talks to the cloud itself, and keeps Pods of others away.
func TestFilesOfTheCloudsNode(t *testing.T) {
	n := node{
		place: inCloud, cfg: Config{Kubelet: Real, Timing: Quick, Installed: true, CoreDNS: true}, bins: programs(),
		disk: t.TempDir(), snapshotter: "native",
	}
	if err := n.writeFiles(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"kubelet.yaml":           "registerWithTaints: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]",
		"kube-proxy.yaml":        n.cert("cloud.kubeconfig"),
		"cni/10-pods.conflist":   "10.128.0.0/24",
		"containerd.toml":        "'native'",
		"hub.kubeconfig":         "",
		hubSettings:              "",
		"Corefile":               "",
		"../" + "p1-n1/anything": "",
	} {
		content, err := os.ReadFile(n.file(name))
		if want == "" {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the cloud has a hub's %s: %v", name, err)
			}
			continue
		}
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s: %v, without %q:\n%s", name, err, want, content)
		}
	}
	kubelet, err := os.ReadFile(n.file("kubelet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]any
	if err := yaml.UnmarshalStrict(kubelet, &settings); err != nil {
		t.Errorf("kubelet.yaml: %v", err)
	}
}

// The log of a Pod's container is found under the name of the program, the one last written to.
func TestContainerLogs(t *testing.T) {
	c := newClient(t.TempDir())
	write := func(at time.Time, parts ...string) string {
		path := filepath.Join(append([]string{c.dir, "machines"}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old := write(time.Unix(1, 0), "p1-n2", "var-log", "pods", "kube-system_c-x_uid", "yurt-coordinator", "1.log")
	now := write(time.Unix(2, 0), "p1-n2", "var-log", "pods", "kube-system_c-w_uid", "yurt-coordinator", "0.log")
	write(time.Unix(3, 0), "p1-n2", "var-log", "pods", "default_web_uid", "yurt-coordinator", "0.log")
	hub := write(time.Unix(3, 0), "p1-n2", "hub.log")
	controller := write(time.Unix(3, 0), "cloud", "var-log", "pods", "kube-system_coordinator-controller-x_uid",
		"coordinator-controller", "0.log")
	for _, tt := range []struct{ machine, component, want string }{
		{"p1-n2", "coordinator", now}, {"p1-n2", "hub", hub}, {"cloud", "coordinator-controller", controller},
	} {
		if got, err := c.Log(tt.machine, tt.component); err != nil || got != tt.want {
			t.Errorf("%s %s: %q, %v", tt.machine, tt.component, got, err)
		}
	}
	if got, err := c.Log("cloud", "coordinator"); err == nil {
		t.Errorf("the cloud has the log %q of a coordinator", got)
	}
	all, err := c.Logs()
	slices.Sort(all)
	want := []string{old, now, hub, controller}
	slices.Sort(want)
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("%q, %v; want %q", all, err, want)
	}
}

// A program that fails says why, in the error.
func TestOutputOfWhatFails(t *testing.T) {
	l := &Lab{cfg: Config{Chart: "/chart", Timing: Quick}, dir: t.TempDir()}
	l.bins.Helm = "/bin/false"
	cmd := l.renderCommand(t.Context())
	if args := strings.Join(cmd.Args, " "); !strings.Contains(args, "template yurt-coordinator /chart --namespace=kube-system") ||
		!strings.Contains(args, "--set-string=controller.silenceAfter=16s") {
		t.Errorf("helm is run as %s", args)
	}
	if _, err := output(cmd); err == nil || !strings.Contains(err.Error(), "false: exit status 1") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too long"))
	err := again(ctx, time.Second, func() error { return io.EOF })
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a try that never succeeds ends with %v", err)
	}
}
