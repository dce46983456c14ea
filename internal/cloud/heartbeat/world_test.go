package heartbeat

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
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
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// world is a cloud in which time passes only when told: an API server, the Leases, and the controller with a queue
// whose delays follow the world's clock. What happens is a function of the calls alone.
type world struct {
	t      testing.TB
	clock  *clocktesting.FakeClock
	client client.Client
	policy *Policy
	// coordinators are the YurtCoordinators, by pool; unknown keeps the end of their first list from the policy.
	coordinators map[string]*v1alpha1.YurtCoordinator
	unknown      bool
	leases       map[string]*coordinationv1.Lease
	calm         time.Duration        // zero: nothing is damped
	revision     int                  // of the last write of a Lease
	due          map[string]time.Time // the queue: when each node's reconcile is due

	reconciles int
	writes     []string // since last cleared: "taint", "condition True ready Unknown", "event Warning CloudLinkDown"

	// fail, if set, is asked before each write and its error returned instead of writing.
	fail func(node string) error
}

const testSilence = 40 * time.Second

func newWorld(t testing.TB) *world {
	w := &world{
		t:      t,
		clock:  clocktesting.NewFakeClock(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)),
		leases: make(map[string]*coordinationv1.Lease), revision: 10_000,

		coordinators: make(map[string]*v1alpha1.YurtCoordinator),
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				if lease, ok := obj.(*coordinationv1.Lease); ok {
					return w.patchLease(lease, p)
				}
				return w.write(obj, opts, func() error { return c.Patch(ctx, obj, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				return w.write(obj, nil, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
			},
		}).Build()
	w.start()
	return w
}

// start replaces the controller by a new one that has seen nothing, as a restart does, and lets it list everything.
func (w *world) start() {
	w.due = make(map[string]time.Time)
	w.policy = New(Config{Client: w.client, Events: recorder{w}, Ends: w.ends(), SilenceAfter: testSilence, Calm: w.calm})
	for _, lease := range w.leases {
		w.policy.leaseHandler().Create(w.t.Context(),
			event.TypedCreateEvent[*coordinationv1.Lease]{Object: lease.DeepCopy(), IsInInitialList: true},
			worldQueue{w: w})
	}
	if err := w.policy.queue.begin(w.t.Context(), worldQueue{w: w}); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range w.coordinators {
		w.policy.coordinatorHandler().OnAdd(c.DeepCopy(), true)
	}
	if !w.unknown {
		w.known()
	}
	var nodes corev1.NodeList
	if err := w.client.List(w.t.Context(), &nodes); err != nil {
		w.t.Fatal(err)
	}
	for i := range nodes.Items {
		w.policy.nodeHandler().Create(w.t.Context(),
			event.TypedCreateEvent[*corev1.Node]{Object: &nodes.Items[i], IsInInitialList: true}, worldQueue{w: w})
	}
}

// write is the API server's side of a write to a Node: it may fail it, and tells the watchers of it.
func (w *world) write(obj client.Object, opts []client.PatchOption, do func() error) error {
	if w.fail != nil {
		if err := w.fail(obj.GetName()); err != nil {
			return err
		}
	}
	for _, o := range opts {
		if owner, ok := o.(client.FieldOwner); ok && string(owner) != FieldOwner {
			w.t.Errorf("a write as %q", owner)
		}
	}
	before := w.node(obj.GetName())
	if err := do(); err != nil {
		return err
	}
	w.writes = append(w.writes, difference(before, w.node(obj.GetName())))
	w.policy.nodeHandler().Update(w.t.Context(),
		event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: w.node(obj.GetName())}, worldQueue{w: w})
	return nil
}

// difference says what a write has changed of what is ours to write.
func difference(before, after *corev1.Node) string {
	var all []string
	has := slices.ContainsFunc[[]corev1.Taint]
	ours := func(n *corev1.Node) []corev1.Taint {
		return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return !isOurs(t) })
	}
	if !slices.Equal(ours(before), ours(after)) {
		all = append(all, "taint")
	}
	if before.Labels[edge.LabelExcludeDisruption] != after.Labels[edge.LabelExcludeDisruption] {
		all = append(all, "label")
	}
	if has(before.Spec.Taints, Evicts) != has(after.Spec.Taints, Evicts) {
		all = append(all, "unevict")
	}
	for _, kind := range []corev1.NodeConditionType{edge.ConditionCloudLinkDown, corev1.NodeReady} {
		if now := ConditionOf(after, kind); now != ConditionOf(before, kind) {
			name := map[corev1.NodeConditionType]string{edge.ConditionCloudLinkDown: "condition", corev1.NodeReady: "ready"}[kind]
			all = append(all, fmt.Sprintf("%s %s", name, now.Status))
		}
	}
	return strings.Join(all, " ")
}

// known has the policy know that it has seen all YurtCoordinators.
func (w *world) known() {
	for _, pool := range w.policy.options.complete() {
		w.policy.wake(w.t.Context(), pool)
	}
}

// show makes or changes the YurtCoordinator of a pool.
func (w *world) show(pool string, status v1alpha1.DelegatedNodeStatus) {
	was, found := w.coordinators[pool]
	is := &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: pool, CreationTimestamp: metav1.Time{Time: w.clock.Now()}},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: pool},
	}
	if found {
		is = was.DeepCopy()
	}
	is.Spec.DelegatedNodeStatus = status
	w.coordinators[pool] = is
	if found {
		w.policy.coordinatorHandler().OnUpdate(was, is.DeepCopy())
	} else {
		w.policy.coordinatorHandler().OnAdd(is.DeepCopy(), false)
	}
}

// node returns a Node as the API server has it; nil where it has none.
func (w *world) node(name string) *corev1.Node {
	var node corev1.Node
	err := w.client.Get(context.Background(), client.ObjectKey{Name: name}, &node)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	return &node
}

func (w *world) createNode(node *corev1.Node) {
	w.t.Helper()
	status := *node.Status.DeepCopy()
	if err := w.client.Create(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	node.Status = status
	if err := w.client.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.policy.nodeHandler().Create(w.t.Context(),
		event.TypedCreateEvent[*corev1.Node]{Object: w.node(node.Name)}, worldQueue{w: w})
}

func (w *world) deleteNode(name string) {
	w.t.Helper()
	node := w.node(name)
	if err := w.client.Delete(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.policy.nodeHandler().Delete(w.t.Context(), event.TypedDeleteEvent[*corev1.Node]{Object: node}, worldQueue{w: w})
}

// editNode is somebody else's write to a Node.
func (w *world) editNode(name string, edit func(*corev1.Node)) {
	w.t.Helper()
	before := w.node(name)
	node := before.DeepCopy()
	edit(node)
	status := *node.Status.DeepCopy()
	if err := w.client.Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	node.Status = status
	if err := w.client.Status().Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.policy.nodeHandler().Update(w.t.Context(),
		event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: w.node(name)}, worldQueue{w: w})
}

// editLease creates or changes the Lease of a node.
func (w *world) editLease(name string, edit func(*coordinationv1.Lease)) {
	was, found := w.leases[name]
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: name,
			UID: types.UID(fmt.Sprint("lease-", w.clock.Now().UnixNano())),
		},
		Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](40)},
	}
	if found {
		lease = was.DeepCopy()
	}
	w.revision++
	lease.ResourceVersion = strconv.Itoa(w.revision)
	edit(lease)
	w.leases[name] = lease
	if found {
		w.policy.leaseHandler().Update(w.t.Context(), event.TypedUpdateEvent[*coordinationv1.Lease]{
			ObjectOld: was, ObjectNew: lease.DeepCopy()}, worldQueue{w: w})
	} else {
		w.policy.leaseHandler().Create(w.t.Context(),
			event.TypedCreateEvent[*coordinationv1.Lease]{Object: lease.DeepCopy()}, worldQueue{w: w})
	}
}

// patchLease is the API server's side of a write to a Lease.
func (w *world) patchLease(lease *coordinationv1.Lease, p client.Patch) error {
	data, err := p.Data(lease)
	if err != nil {
		return err
	}
	var to coordinationv1.Lease
	if err := json.Unmarshal(data, &to); err != nil {
		return err
	}
	if is := w.leases[lease.Name]; is == nil || to.ResourceVersion != is.ResourceVersion {
		return conflict(lease.Name)
	}
	w.editLease(lease.Name, func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = to.Spec.RenewTime
		maps.Copy(l.Annotations, to.Annotations)
	})
	w.writes = append(w.writes, "lease")
	return nil
}

// nodeClockSkew is how far the nodes' clocks are from ours: five minutes behind.
const nodeClockSkew = -5 * time.Minute

// renew is a heartbeat: of the node itself or, if delegated, of another one for it.
func (w *world) renew(name string, delegated bool) {
	w.editLease(name, func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: w.clock.Now().Add(nodeClockSkew)}
		annotate(l, delegated)
	})
}

func annotate(l *coordinationv1.Lease, delegated bool) {
	l.Annotations = nil
	if delegated {
		l.Annotations = map[string]string{edge.DelegateHeartbeat: "true"}
	}
}

func (w *world) deleteLease(name string) {
	lease, found := w.leases[name]
	if !found {
		return
	}
	delete(w.leases, name)
	w.policy.leaseHandler().Delete(w.t.Context(), event.TypedDeleteEvent[*coordinationv1.Lease]{Object: lease},
		worldQueue{w: w})
}

// pass lets time go by, and the controller do what falls due before its end.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	end := w.clock.Now().Add(d)
	for {
		next, at := "", end
		for name, due := range w.due {
			if due.Before(at) || next != "" && due.Equal(at) && name < next {
				next, at = name, due
			}
		}
		if next == "" {
			w.clock.SetTime(end)
			return
		}
		if at.After(w.clock.Now()) {
			w.clock.SetTime(at)
		}
		w.reconcile(next)
	}
}

func (w *world) reconcile(name string) {
	w.t.Helper()
	delete(w.due, name)
	w.reconciles++
	ctx := klog.NewContext(w.t.Context(), logr.Discard())
	result, err := w.policy.Reconcile(ctx, control.Request(name))
	switch {
	case err != nil:
		worldQueue{w: w}.AddAfter(control.Request(name), control.Base)
	case result.RequeueAfter > 0:
		worldQueue{w: w}.AddAfter(control.Request(name), result.RequeueAfter)
	}
}

// said takes what was written since it was last asked.
func (w *world) said() []string {
	writes := w.writes
	w.writes = nil
	return writes
}

// worldQueue is a work queue in the world's time.
type worldQueue struct {
	queue // nil: what is not overridden must not be called
	w     *world
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
	if !ok || ref.Kind != "Node" || ref.APIVersion != "v1" || ref.ResourceVersion != "" || related != nil ||
		action == "" {
		r.w.t.Errorf("event regarding %+v, related %v, action %q", regarding, related, action)
	}
	if note == "" || len(args) == 0 {
		r.w.t.Errorf("event %s without a note", reason)
	}
	r.w.writes = append(r.w.writes, fmt.Sprintf("event %s %s", eventType, reason))
}

func conflict(node string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node, fmt.Errorf("changed meanwhile"))
}

// sometimes returns conflicts at random, but never more than two in a row.
func sometimes(r *rand.Rand) func(string) error {
	row := 0
	return func(node string) error {
		if row < 2 && r.IntN(4) == 0 {
			row++
			return conflict(node)
		}
		row = 0
		return nil
	}
}

// ends are of a machine whose clocks are the world's.
func (w *world) ends() ends.Ends {
	return ends.Ends{Clock: ends.Clock{OfDay: w.clock.Now, Ran: w.clock.Now}}
}
