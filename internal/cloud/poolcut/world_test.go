package poolcut

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// world is a cloud in which time passes only when told: an API server, the Leases, kube-controller-manager as far as it
// matters here, and the controller with a queue whose delays follow the world's clock.
type world struct {
	t      *testing.T
	clock  *clocktesting.FakeClock
	client client.Client
	c      *Controller
	due    map[string]time.Time

	leases  map[string]*coordinationv1.Lease
	renewed map[string]time.Time // as kube-controller-manager saw it
	down    map[string]bool      // nodes that nobody hears of

	unless time.Duration // Config.Default, at the next start

	writes int
	said   []string // since last asked: Events on the NodePool
	// fail, if set, is asked before each of our writes, and its error returned instead.
	fail func(node string) error
	// evicting are the taints that kube-controller-manager has put on Nodes, and when; refused is how often it could not.
	evicting map[string]time.Time
	refused  int
}

const (
	silenceAfter = 40 * time.Second
	grace        = 50 * time.Second
	interval     = 10 * time.Second
)

func newWorld(t *testing.T, annotations map[string]string, nodes ...string) *world {
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)),
		leases: map[string]*coordinationv1.Lease{}, renewed: map[string]time.Time{}, down: map[string]bool{},
		evicting: map[string]time.Time{},
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme, v1beta2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Node{}, index, indexed).WithIndex(&v1alpha1.YurtCoordinator{}, index, indexed).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				return w.write(o, func() error { return c.Patch(ctx, o, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				return w.write(o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		}).Build()
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p1", UID: "pool", Annotations: annotations}}
	if err := w.client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	w.start()
	for _, name := range nodes {
		w.join(name)
	}
	return w
}

// start replaces the controller by a new one that has seen nothing, as a restart does, and lets it list everything.
func (w *world) start() {
	w.due = map[string]time.Time{}
	w.c = New(Config{Client: w.client, Events: recorder{w}, Ends: w.ends(), SilenceAfter: silenceAfter, Default: w.unless})
	ctx, q := w.t.Context(), worldQueue{w: w}
	for _, l := range w.leases {
		w.c.leaseHandler().Create(ctx, event.TypedCreateEvent[*coordinationv1.Lease]{Object: l}, q)
	}
	var nodes corev1.NodeList
	if err := w.client.List(ctx, &nodes); err != nil {
		w.t.Fatal(err)
	}
	for i := range nodes.Items {
		w.c.nodeHandler().Create(ctx, event.TypedCreateEvent[*corev1.Node]{Object: &nodes.Items[i]}, q)
	}
	w.c.poolHandler().Create(ctx, event.TypedCreateEvent[*metav1.PartialObjectMetadata]{Object: w.pool()}, q)
}

func (w *world) pool() *metav1.PartialObjectMetadata {
	np := newNodePool()
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: "p1"}, np); err != nil {
		w.t.Fatal(err)
	}
	return np
}

// coordinator makes a YurtCoordinator of the pool that has been given a coordinator.
func (w *world) coordinator(name string) *v1alpha1.YurtCoordinator {
	y := &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{edge.FinalizerCoordinator}},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: "p1"},
	}
	if err := w.client.Create(w.t.Context(), y); err != nil {
		w.t.Fatal(err)
	}
	w.c.coordinatorHandler().Create(w.t.Context(),
		event.TypedCreateEvent[*v1alpha1.YurtCoordinator]{Object: y}, worldQueue{w: w})
	return y
}

// annotate sets the annotation of the NodePool, or removes it.
func (w *world) annotate(value string) {
	before := w.pool()
	after := before.DeepCopy()
	delete(after.Annotations, edge.AnnotationHoldEvictions)
	if value != "" {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, edge.AnnotationHoldEvictions, value)
	}
	full := &v1beta2.NodePool{ObjectMeta: after.ObjectMeta}
	if err := w.client.Update(w.t.Context(), full); err != nil {
		w.t.Fatal(err)
	}
	w.c.poolHandler().Update(w.t.Context(),
		event.TypedUpdateEvent[*metav1.PartialObjectMetadata]{ObjectOld: before, ObjectNew: w.pool()}, worldQueue{w: w})
}

// join makes a Node, whose kubelet says that it is Ready, and has it renew its Lease.
func (w *world) join(name string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{edge.LabelNodePool: "p1"},
	}}
	if err := w.client.Create(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := w.client.Status().Update(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	w.c.nodeHandler().Create(w.t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: w.node(name)}, worldQueue{w: w})
}

func (w *world) node(name string) *corev1.Node {
	var n corev1.Node
	if err := w.client.Get(context.Background(), client.ObjectKey{Name: name}, &n); err != nil {
		w.t.Fatal(err)
	}
	return &n
}

// edit is somebody else's write to a Node.
func (w *world) edit(name string, edit func(*corev1.Node)) {
	before := w.node(name)
	after := before.DeepCopy()
	edit(after)
	status := *after.Status.DeepCopy()
	if err := w.client.Update(w.t.Context(), after); err != nil {
		w.t.Fatal(err)
	}
	after.Status = status
	if err := w.client.Status().Update(w.t.Context(), after); err != nil {
		w.t.Fatal(err)
	}
	w.updated(before)
}

func (w *world) updated(before *corev1.Node) {
	if w.c == nil {
		return
	}
	w.c.nodeHandler().Update(w.t.Context(),
		event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: w.node(before.Name)}, worldQueue{w: w})
}

func (w *world) write(o client.Object, do func() error) error {
	if w.fail != nil {
		if err := w.fail(o.GetName()); err != nil {
			return err
		}
	}
	before := w.node(o.GetName())
	if err := do(); err != nil {
		return err
	}
	w.writes++
	w.updated(before)
	return nil
}

// renew is a heartbeat.
func (w *world) renew(name string) {
	q, ctx := worldQueue{w: w}, w.t.Context()
	w.renewed[name] = w.clock.Now()
	was, found := w.leases[name]
	is := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease, UID: "lease"},
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: w.clock.Now().Add(-time.Hour)},
		},
	}
	w.leases[name] = is
	if w.c == nil {
		return
	}
	if found {
		w.c.leaseHandler().Update(ctx, event.TypedUpdateEvent[*coordinationv1.Lease]{ObjectOld: was, ObjectNew: is}, q)
	} else {
		w.c.leaseHandler().Create(ctx, event.TypedCreateEvent[*coordinationv1.Lease]{Object: is}, q)
	}
}

// pass lets time go by: nodes renew their Leases every 10 s, each at its own second; kube-controller-manager looks every
// second, or in long times less often; and the controller does what falls due.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	step := time.Second
	switch {
	case d > 10*time.Minute && len(w.down) == 3:
		step = time.Minute
	case d > 10*time.Minute:
		step = interval
	}
	for range int(d / step) {
		end := w.clock.Now().Add(step)
		w.work(end)
		w.clock.SetTime(end)
		for i, name := range w.names() {
			last, known := w.renewed[name]
			due := !known && end.Unix()%10 == int64(i)*4%10 || known && end.Sub(last) >= interval
			if !w.down[name] && due {
				w.renew(name)
				w.kubelet(name)
			}
		}
		w.kubeControllerManager()
		w.work(end)
	}
}

func (w *world) names() []string {
	var nodes corev1.NodeList
	if err := w.client.List(w.t.Context(), &nodes); err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	return names
}

// kubelet says that its node is Ready, some while after its heartbeat.
func (w *world) kubelet(name string) {
	if status(w.node(name), corev1.NodeReady) != corev1.ConditionTrue && w.clock.Now().Unix()%20 < 10 {
		w.edit(name, func(n *corev1.Node) {
			heartbeat.SetCondition(n, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
		})
	}
}

// kubeControllerManager calls a silent node Unknown and taints it, unless the policy refuses that.
func (w *world) kubeControllerManager() {
	for _, name := range w.names() {
		n := w.node(name)
		at, known := w.renewed[name]
		if known && w.clock.Now().Sub(at) > grace && status(n, corev1.NodeReady) == corev1.ConditionTrue {
			w.edit(name, func(n *corev1.Node) {
				heartbeat.SetCondition(n, corev1.NodeCondition{
					Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
					LastTransitionTime: metav1.NewTime(w.clock.Now()),
				})
			})
		}
		n = w.node(name)
		has := tainted(n, corev1.TaintNodeUnreachable)
		switch ready := status(n, corev1.NodeReady); {
		case ready == corev1.ConditionUnknown && !has && status(n, edge.ConditionEvictionsHeld) == corev1.ConditionTrue:
			w.refused++
		case ready == corev1.ConditionUnknown && !has:
			w.evicting[name] = w.clock.Now()
			w.edit(name, func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
					corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
			})
		case ready == corev1.ConditionTrue && has:
			delete(w.evicting, name)
			w.edit(name, func(n *corev1.Node) { n.Spec.Taints = nil })
		}
	}
}

// says returns a Node's EvictionsHeld condition.
func (w *world) says(name string) corev1.NodeCondition {
	return heartbeat.ConditionOf(w.node(name), edge.ConditionEvictionsHeld)
}

func status(n *corev1.Node, of corev1.NodeConditionType) corev1.ConditionStatus {
	return heartbeat.ConditionOf(n, of).Status
}

// work does what falls due before end.
func (w *world) work(end time.Time) {
	if w.c == nil {
		return
	}
	for range 1000 {
		next, at := "", end
		for name, due := range w.due {
			if due.Before(at) || due.Equal(at) && due.Equal(w.clock.Now()) && next == "" {
				next, at = name, due
			}
		}
		if next == "" {
			return
		}
		if at.After(w.clock.Now()) {
			w.clock.SetTime(at)
		}
		delete(w.due, next)
		ctx := klog.NewContext(w.t.Context(), logr.Discard())
		result, err := w.c.Reconcile(ctx, control.Request(edge.PoolName(next)))
		switch {
		case err != nil:
			worldQueue{w: w}.AddAfter(control.Request(edge.PoolName(next)), control.Base)
		case result.RequeueAfter > 0:
			worldQueue{w: w}.AddAfter(control.Request(edge.PoolName(next)), result.RequeueAfter)
		}
	}
	w.t.Fatal("the controller has no end of work")
}

// cut has nobody hear of these nodes, heal has everybody.
func (w *world) cut(nodes ...string) {
	for _, n := range nodes {
		w.down[n] = true
	}
}

func (w *world) heal(nodes ...string) {
	for _, n := range nodes {
		delete(w.down, n)
	}
}

// reasons are those of the EvictionsHeld conditions, by node: "n1 WholePoolCut".
func (w *world) reasons() []string {
	var all []string
	for _, name := range w.names() {
		if c := w.says(name); c.Type != "" {
			all = append(all, name+" "+c.Reason)
		}
	}
	return all
}

func (w *world) wantReasons(when string, want ...string) {
	w.t.Helper()
	if got := w.reasons(); !slices.Equal(got, want) {
		w.t.Errorf("%s: %v, want %v", when, got, want)
	}
}

// wantSaid holds the Events since it was last asked against prefixes.
func (w *world) wantSaid(when string, want ...string) {
	w.t.Helper()
	ok := len(w.said) == len(want)
	for i := range w.said {
		ok = ok && strings.HasPrefix(w.said[i], want[i])
	}
	if !ok {
		w.t.Errorf("%s: said %q, want %q", when, w.said, want)
	}
	w.said = nil
}

// wantEvicting are the nodes whose Pods are being evicted.
func (w *world) wantEvicting(when string, want ...string) {
	w.t.Helper()
	var got []string
	for _, name := range w.names() {
		if tainted(w.node(name), corev1.TaintNodeUnreachable) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: evicting from %v, want %v", when, got, want)
	}
}

type worldQueue struct {
	control.Queue // nil: what is not overridden must not be called
	w             *world
}

func (q worldQueue) Add(r reconcile.Request) { q.AddAfter(r, 0) }

func (q worldQueue) AddAfter(r reconcile.Request, d time.Duration) {
	at := q.w.clock.Now().Add(d)
	if due, ok := q.w.due[r.Name]; !ok || at.Before(due) {
		q.w.due[r.Name] = at
	}
}

type recorder struct{ w *world }

func (r recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok || ref.Kind != "NodePool" || ref.APIVersion != "apps.openyurt.io/v1beta2" || ref.Name != "p1" || ref.UID != "pool" ||
		ref.ResourceVersion != "" || related != nil || action == "" {
		r.w.t.Errorf("event regarding %+v, related %v, action %q", regarding, related, action)
	}
	r.w.said = append(r.w.said, fmt.Sprintf("%s %s %s", eventType, reason, fmt.Sprintf(note, args...)))
}

func conflict(node string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node, fmt.Errorf("changed meanwhile"))
}

// ends are of a machine whose clocks are the world's.
func (w *world) ends() ends.Ends {
	return ends.Ends{Clock: ends.Clock{OfDay: w.clock.Now, Ran: w.clock.Now}}
}
