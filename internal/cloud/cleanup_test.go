package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/autonomy"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// uninstalling is a cluster with the traces of all controllers, and none of them running.
type uninstalling struct {
	*testing.T
	c      client.WithWatch
	cfg    *rest.Config
	config Config // as the controller's own ServiceAccount
}

// newUninstalling leaves out the rights that go with switches that are off.
func newUninstalling(t *testing.T, off ...string) *uninstalling {
	u := &uninstalling{T: t, cfg: cloudtest.Start(t)}
	u.c = cloudtest.Client(t, u.cfg)
	u.Setenv("KUBECONFIG", "")
	content := manifests(t, off...)
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		u.must(client.IgnoreAlreadyExists(u.c.Create(t.Context(), o)))
	}
	u.config = Config{
		Connect: Kubeconfig(u.kubeconfig()), Autonomy: true, LeaderElect: true, MetricsAddress: "0", HealthAddress: "0",
	}
	return u
}

func (u *uninstalling) must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

// kubeconfig returns the path of one with the rights of the chart, and no others.
func (u *uninstalling) kubeconfig() string {
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: u.cfg.Host, CertificateAuthorityData: u.cfg.CAData}
	c.AuthInfos["c"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: u.cfg.CertData, ClientKeyData: u.cfg.KeyData,
		Impersonate: "system:serviceaccount:kube-system:" + Name, ImpersonateGroups: []string{"system:serviceaccounts"},
	}
	c.Contexts["c"], c.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}, "c"
	path := filepath.Join(u.TempDir(), "kubeconfig")
	u.must(clientcmd.WriteToFile(*c, path))
	return path
}

func (u *uninstalling) create(o client.Object) {
	u.Helper()
	u.must(u.c.Create(u.Context(), o))
}

func (u *uninstalling) get(o client.Object) {
	u.Helper()
	u.must(u.c.Get(u.Context(), client.ObjectKeyFromObject(o), o))
}

const (
	foreignTaint = "example.org/t"
	ownSeconds   = 300
)

// node makes a Node with everything that controllers put on Nodes.
func (u *uninstalling) node(name string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{
				edge.LabelNodePool: "p1", edge.LabelExcludeDisruption: edge.ExcludedCloudLinkDown, "own": "x",
			},
			Annotations: map[string]string{
				edge.AnnotationAutonomyDuration: "1h", edge.AnnotationSettings: "1/1//", edge.AnnotationProgram: "v0.2.0",
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: edge.TaintUnschedulable, Effect: corev1.TaintEffectNoSchedule},
			{Key: edge.TaintUnschedulable, Effect: corev1.TaintEffectPreferNoSchedule},
			{Key: foreignTaint, Effect: corev1.TaintEffectNoSchedule},
		}},
	}
	u.create(n)
	for kind, is := range map[corev1.NodeConditionType]corev1.NodeCondition{
		corev1.NodeReady:              {Status: corev1.ConditionUnknown, Reason: edge.ReasonCloudLinkDown},
		edge.ConditionCloudLinkDown:   {Status: corev1.ConditionTrue},
		edge.ConditionEvictionsHeld:   {Status: corev1.ConditionTrue},
		edge.ConditionPodsKept:        {Status: corev1.ConditionTrue, Reason: autonomy.ReasonAutonomous},
		corev1.NodeNetworkUnavailable: {Status: corev1.ConditionFalse},
	} {
		is.Type = kind
		n.Status.Conditions = append(n.Status.Conditions, is)
	}
	u.must(u.c.Status().Update(u.Context(), n))
	return n
}

// pod makes a Pod of a node which the controller keeps there for ever, instead of the Pod's own time.
func (u *uninstalling) pod(node string) *corev1.Pod {
	stays := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + node, Annotations: map[string]string{
			edge.AnnotationOriginalNotReady: fmt.Sprint(ownSeconds), edge.AnnotationOriginalUnreachable: fmt.Sprint(ownSeconds),
			edge.AnnotationHeldSince: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano), "own": "x",
		}},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}, AutomountServiceAccountToken: ptr.To(false),
			Tolerations: []corev1.Toleration{stays(corev1.TaintNodeNotReady), stays(corev1.TaintNodeUnreachable)},
		},
	}
	u.create(p)
	return p
}

// fromPool gives a Node what it has from a NodePool, as the controller writes it.
func (u *uninstalling) fromPool(n *corev1.Node) {
	site := map[string]string{"site": "x"}
	wanted := apply.Node(n.Name).WithLabels(site).WithAnnotations(site).
		WithAnnotations(map[string]string{nodepool.AnnotationAttributes: `{"labels":["site"],"annotations":["site"]}`})
	u.must(u.c.Apply(u.Context(), wanted, client.FieldOwner(nodepool.FieldOwner), client.ForceOwnership))
	u.get(n)
	base := client.MergeFrom(n.DeepCopy())
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "site", Effect: corev1.TaintEffectNoExecute})
	n.Annotations[nodepool.AnnotationTaints] = `[{"key":"site","effect":"NoExecute"}]`
	u.must(u.c.Patch(u.Context(), n, base, client.FieldOwner(nodepool.FieldOwner)))
}

// settings makes what a pool's hubs are told, and their right to read it.
func (u *uninstalling) settings(pool edge.PoolName) []client.Object {
	told := metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: pool.SettingsConfigMap()}
	all := []client.Object{
		&corev1.ConfigMap{ObjectMeta: told}, &rbacv1.Role{ObjectMeta: told},
		&rbacv1.RoleBinding{ObjectMeta: told, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: told.Name}},
	}
	for _, o := range all {
		u.create(o)
	}
	return all
}

// taints are those of a Node, without Kubernetes' own for a Node that has never been ready.
func taints(n *corev1.Node) []string {
	var keys []string
	for _, t := range n.Spec.Taints {
		if t.Key != corev1.TaintNodeNotReady {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

// clean expects a Node to have nothing of ours, and everything of others.
func (u *uninstalling) clean(n *corev1.Node) {
	u.Helper()
	u.get(n)
	var conditions []string
	for _, c := range n.Status.Conditions {
		conditions = append(conditions, string(c.Type)+"="+string(c.Status))
	}
	slices.Sort(conditions)
	if !slices.Equal(conditions, []string{"NetworkUnavailable=False", "Ready=True"}) {
		u.Errorf("conditions of %s: %v", n.Name, conditions)
	}
	if got := taints(n); !slices.Equal(got, []string{foreignTaint}) {
		u.Errorf("taints of %s: %v", n.Name, got)
	}
	if len(n.Labels) != 2 || n.Labels["own"] != "x" || n.Labels[edge.LabelNodePool] != "p1" {
		u.Errorf("labels of %s: %v", n.Name, n.Labels)
	}
	if len(n.Annotations) != 1 || n.Annotations[edge.AnnotationAutonomyDuration] != "1h" {
		u.Errorf("annotations of %s: %v", n.Name, n.Annotations)
	}
}

func (u *uninstalling) gone(o client.Object) {
	u.Helper()
	if err := u.c.Get(u.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		u.Errorf("%T %s is there, with finalizers %v: %v", o, o.GetName(), o.GetFinalizers(), err)
	}
}

// TestCleanUp: with the rights of the chart, nothing of ours is left on what is others'.
func TestCleanUp(t *testing.T) {
	u := newUninstalling(t)
	pool := &v1beta2.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "p1", Finalizers: []string{nodepool.Finalizer, "example.org/other"}},
	}
	u.create(pool)
	deleted := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p2", Finalizers: []string{nodepool.Finalizer}}}
	yc := &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: "p1", Finalizers: []string{coordinator.Finalizer}},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: "p1"},
	}
	for _, o := range []client.Object{deleted, yc} {
		u.create(o)
		u.must(u.c.Delete(t.Context(), o))
	}
	rolls := []client.Object{}
	for _, name := range []string{edge.ConfigMapShownNotReady, edge.ConfigMapCoordinatedPools, edge.ConfigMapAutonomousPools} {
		rolls = append(rolls, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name}})
		u.create(rolls[len(rolls)-1])
	}
	rolls = append(rolls, u.settings("p1")...)
	var nodes []*corev1.Node
	for _, name := range []string{"n1", "n2"} {
		n := u.node(name)
		u.fromPool(n)
		next := client.MergeFrom(n.DeepCopy())
		n.Labels[edge.LabelCoordinatorNode] = "0"
		u.must(u.c.Patch(t.Context(), n, next))
		nodes = append(nodes, n)
	}
	pod := u.pod("n1")
	labels := map[string]string{"app": Name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	}
	u.create(d)

	for range 2 { // the second time there is nothing to do
		if err := CleanUp(quiet(t), u.config); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			u.clean(n)
		}
		u.get(pod)
		if len(pod.Annotations) != 1 {
			t.Errorf("annotations of the Pod: %v", pod.Annotations)
		}
		for _, tolerated := range pod.Spec.Tolerations {
			if s := tolerated.TolerationSeconds; s == nil || *s != ownSeconds {
				t.Errorf("the Pod tolerates %+v", tolerated)
			}
		}
		u.get(pool)
		if !slices.Equal(pool.Finalizers, []string{"example.org/other"}) {
			t.Errorf("finalizers of the NodePool: %v", pool.Finalizers)
		}
		for _, o := range append([]client.Object{deleted, yc}, rolls...) {
			u.gone(o)
		}
		u.get(d)
		if *d.Spec.Replicas != 0 {
			t.Errorf("the controller runs %d times", *d.Spec.Replicas)
		}
	}
}

func tracesOf(controllers ...string) []trace {
	return slices.DeleteFunc(traces(true), func(t trace) bool { return !slices.Contains(controllers, t.controller) })
}

// TestCleanUpOfAKeptPod: kube-controller-manager must have seen its toleration endless before it gets its own number back.
// Until then the Node's condition stays, by which the Pod is found.
func TestCleanUpOfAKeptPod(t *testing.T) {
	u := newUninstalling(t)
	n := u.node("n1")
	pod := u.pod("n1")
	pod.Annotations[edge.AnnotationHeldSince] = ""
	base := client.MergeFrom(pod.DeepCopy())
	for i := range pod.Spec.Tolerations {
		pod.Spec.Tolerations[i].TolerationSeconds = ptr.To[int64](3600)
	}
	u.must(u.c.Patch(t.Context(), pod, base))
	now := time.Now()
	c := newCleaner(u.c, ends.Clock{OfDay: func() time.Time { return now }},
		tracesOf("heartbeat", "autonomy", "poolcut", "poolsettings"))
	after, err := c.pass(quiet(t))
	u.get(n)
	if err != nil || after != autonomy.HoldFor || !slices.ContainsFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == edge.ConditionPodsKept }) {
		t.Fatalf("after the first pass: %v, %v, %v", after, err, n.Status.Conditions)
	}
	now = now.Add(after)
	if after, err = c.pass(quiet(t)); after != 0 || err != nil {
		t.Fatalf("after the second pass: %v, %v", after, err)
	}
	u.get(pod)
	if s := pod.Spec.Tolerations[0].TolerationSeconds; s == nil || *s != ownSeconds || len(pod.Annotations) != 1 {
		t.Errorf("the Pod has %v, %v", pod.Spec.Tolerations, pod.Annotations)
	}
	u.clean(n)
}

// TestAnotherControllerTakesAutonomyOver: what keeps the Pods stays on them.
func TestAnotherControllerTakesAutonomyOver(t *testing.T) {
	u := newUninstalling(t)
	n := u.node("n1")
	before := u.pod("n1")
	c := newCleaner(u.c, ends.Clock{}, slices.DeleteFunc(traces(false), func(t trace) bool { return t.controller != "autonomy" }))
	if after, err := c.pass(quiet(t)); after != 0 || err != nil {
		t.Fatalf("%v, %v", after, err)
	}
	pod := before.DeepCopy()
	u.get(pod)
	u.get(n)
	if pod.ResourceVersion != before.ResourceVersion || len(pod.Annotations) == 0 {
		t.Errorf("the Pod has %v, %v", pod.Spec.Tolerations, pod.Annotations)
	}
	for _, is := range n.Status.Conditions {
		if is.Type == edge.ConditionPodsKept {
			t.Error("nobody keeps the condition true, and it is still there")
		}
	}
	if !slices.Contains(taints(n), edge.TaintUnschedulable) {
		t.Error("another controller's taint is gone")
	}
}

// TestAfterControllersThatAreOff: they leave nothing behind either; the others' stays. The rights that are left are enough.
func TestAfterControllersThatAreOff(t *testing.T) {
	u := newUninstalling(t, "appsets", "coordinators", "signer", "keys", "poolsettings")
	pool := &v1beta2.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "p1", Finalizers: []string{nodepool.Finalizer}},
	}
	yc := &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: "p1", Finalizers: []string{coordinator.Finalizer}},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: "p1"},
	}
	u.create(pool)
	u.create(yc)
	n := u.node("n1")
	u.fromPool(n)
	told := u.settings("p1")
	config := u.config // all of our kinds are off
	config.Heartbeats, config.PoolCuts, config.Approver = true, true, ApproverElsewhere
	ctx, stop := context.WithCancel(quiet(t))
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config) }()
	cloudtest.Eventually(t, "finalizers gone", func() error {
		u.get(pool)
		u.get(yc)
		u.get(n)
		if _, has := n.Labels["site"]; has || len(pool.Finalizers)+len(yc.Finalizers) > 0 {
			return fmt.Errorf("%v, %v, %v", pool.Finalizers, yc.Finalizers, n.Labels)
		}
		if is := n.Annotations[edge.AnnotationSettings] + n.Annotations[edge.AnnotationProgram]; is != "" {
			return fmt.Errorf("its hub's word on its settings is there: %s", is)
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, o := range told {
		u.gone(o)
	}
	if got := taints(n); n.Annotations[nodepool.AnnotationTaints] != "" || slices.Contains(got, "site") {
		t.Errorf("it has %v, %v", n.Annotations, got)
	}
	if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == edge.ConditionCloudLinkDown
	}) {
		t.Error("the condition of another controller is gone")
	}
}

// TestCleanUpSaysWhatIsLeft, where the API server refuses it, and the time is over in the midst of another try.
func TestCleanUpSaysWhatIsLeft(t *testing.T) {
	u := newUninstalling(t)
	n := u.node("n1")
	c := cloudtest.Client(t, cloudtest.Restricted(t, u.cfg, "reader",
		cloudtest.May("", "nodes", "get", "list"), cloudtest.May("apps.openyurt.io", "nodepools", "list")))
	ctx, cancel := context.WithCancel(quiet(t))
	defer cancel()
	var passes atomic.Int32
	breaks := interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.NodeList); ok && passes.Add(1) == 2 {
				cancel()
			}
			return c.List(ctx, list, opts...)
		},
	})
	err := newCleaner(breaks, ends.Clock{}, tracesOf("heartbeat", "nodepool")).run(ctx)
	if err == nil || !strings.Contains(err.Error(), "node n1") {
		t.Errorf("%v, want one that names the node", err)
	}
	u.get(n)
	if got := taints(n); !slices.Equal(got, []string{edge.TaintUnschedulable, edge.TaintUnschedulable, foreignTaint}) {
		t.Errorf("it has %v", got)
	}
}

// TestCleanUpIsPatient: what can't be cleaned up for long costs little, and Nodes without anything of ours cost nothing.
func TestCleanUpIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, gets := 0, 0
		c := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).
			WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					lists++
					return c.List(ctx, list, opts...)
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					gets++
					return c.Get(ctx, key, o, opts...)
				},
			}).Build()
		ctx, cancel := context.WithTimeout(quiet(t), 10*time.Minute)
		defer cancel()
		refused := errors.New("a policy says no")
		refuses := func(context.Context, client.Client) error { return refused }
		traces := []trace{{release: refuses, condition: edge.ConditionCloudLinkDown}}
		if err := newCleaner(c, ends.Clock{}, traces).run(ctx); !errors.Is(err, refused) {
			t.Error(err)
		}
		if lists < 10 || lists > 30 || gets > 0 {
			t.Errorf("%d passes in 10 minutes, with %d reads of Nodes", lists, gets)
		}
	})
}
