package autonomy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

var discard = logr.Discard()

// world is a cloud in which time passes only when told: an API server, kube-controller-manager's evictions, and the
// controller with queues whose delays follow the world's clock. What happens is a function of the calls alone.
type world struct {
	t      testing.TB
	clock  *clocktesting.FakeClock
	client client.WithWatch
	policy *Policy
	due    map[task]time.Time // the two queues
	evict  evictor

	lists, gets int
	writes      []string // since last cleared

	// fail, if set, is asked before each write and its error returned instead of writing.
	fail func(kind, name string) error
}

// task is an entry of one of the controllers' queues.
type task struct {
	controller string
	reconcile.Request
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, clock: clocktesting.NewFakeClock(begin)}
	w.evict = evictor{w: w, timers: map[string]timer{}}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).
		WithIndex(&corev1.Pod{}, fieldNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				w.lists++
				return c.List(ctx, list, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				before := w.pod(obj.GetName())
				err := w.write("Pod", obj.GetName(), opts, func() error { return c.Patch(ctx, obj, p, opts...) })
				if err == nil {
					w.writes = append(w.writes, obj.GetName()+" "+text(w.pod(obj.GetName())))
					w.podChanged(before)
				}
				return err
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption) error {
				before := w.node(obj.GetName())
				err := w.write("Node", obj.GetName(), nil, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
				if err == nil {
					c := conditionOf(w.node(obj.GetName()))
					w.writes = append(w.writes, fmt.Sprintf("%s %s %s", obj.GetName(), c.Status, c.Reason))
					w.nodeChanged(before)
				}
				return err
			},
		}).Build()
	w.start()
	return w
}

// start replaces the controller by a new one that has seen nothing, as a restart does.
func (w *world) start() {
	w.due = map[task]time.Time{}
	w.policy = New(Config{Nodes: w.client, Pods: w.client, Events: recorder{w}, Ends: w.ends()})
	var nodes corev1.NodeList
	if err := w.client.List(w.t.Context(), &nodes); err != nil {
		w.t.Fatal(err)
	}
	for i := range nodes.Items {
		w.policy.nodeHandler().Create(w.t.Context(),
			event.TypedCreateEvent[*corev1.Node]{Object: &nodes.Items[i], IsInInitialList: true}, worldQueue{w: w, of: "node"})
	}
}

func (w *world) write(kind, name string, opts []client.PatchOption, do func() error) error {
	if w.fail != nil {
		if err := w.fail(kind, name); err != nil {
			return err
		}
	}
	for _, o := range opts {
		if owner, ok := o.(client.FieldOwner); ok && string(owner) != FieldOwner {
			w.t.Errorf("a write as %q", owner)
		}
	}
	return do()
}

func (w *world) node(name string) *corev1.Node {
	var node corev1.Node
	if err := w.client.Get(context.Background(), client.ObjectKey{Name: name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		w.t.Fatal(err)
	}
	return &node
}

func keyOf(pod string) client.ObjectKey { return client.ObjectKey{Namespace: "default", Name: pod} }

func (w *world) pod(name string) *corev1.Pod {
	var pod corev1.Pod
	if err := w.client.Get(context.Background(), keyOf(name), &pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		w.t.Fatal(err)
	}
	return &pod
}

// nodeChanged tells those who watch Nodes.
func (w *world) nodeChanged(before *corev1.Node) {
	after := w.node(before.Name)
	w.policy.nodeHandler().Update(w.t.Context(),
		event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: after}, worldQueue{w: w, of: "node"})
	if fmt.Sprint(before.Spec.Taints) != fmt.Sprint(after.Spec.Taints) {
		w.evict.node(after.Name)
	}
}

// podChanged tells those who watch Pods; the evictor, as kube-controller-manager, only of changed tolerations.
func (w *world) podChanged(before *corev1.Pod) {
	after := w.pod(before.Name)
	w.policy.sawPod(after.DeepCopy(), worldQueue{w: w, of: "pod"})
	if fmt.Sprint(before.Spec.Tolerations) != fmt.Sprint(after.Spec.Tolerations) {
		w.evict.pod(after)
	}
}

func (w *world) createNode(name string, annotations map[string]string) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("node-" + name), Annotations: annotations,
		Labels: map[string]string{edge.LabelNodePool: "pool1"},
	}}
	if err := w.client.Create(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.policy.nodeHandler().Create(w.t.Context(),
		event.TypedCreateEvent[*corev1.Node]{Object: w.node(name)}, worldQueue{w: w, of: "node"})
}

func (w *world) deleteNode(name string) {
	w.t.Helper()
	node := w.node(name)
	if err := w.client.Delete(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.policy.nodeHandler().Delete(w.t.Context(), event.TypedDeleteEvent[*corev1.Node]{Object: node},
		worldQueue{w: w, of: "node"})
}

// annotate replaces a Node's annotations.
func (w *world) annotate(name string, annotations map[string]string) {
	w.editNode(name, func(n *corev1.Node) { n.Annotations = annotations })
}

// lose taints a Node as kube-controller-manager does; find takes the taint away.
func (w *world) lose(name string) {
	w.editNode(name, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: noExecute}}
	})
}

func (w *world) find(name string) { w.editNode(name, func(n *corev1.Node) { n.Spec.Taints = nil }) }

func (w *world) editNode(name string, edit func(*corev1.Node)) {
	w.t.Helper()
	before := w.node(name)
	node := before.DeepCopy()
	edit(node)
	if err := w.client.Update(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.nodeChanged(before)
}

// createPod binds a new Pod to a node.
func (w *world) createPod(name, node string, tolerations []corev1.Toleration, annotations map[string]string) {
	w.t.Helper()
	pod := aPod(tolerations, annotations)
	pod.Name, pod.UID, pod.Spec.NodeName = name, types.UID("pod-"+name), node
	if err := w.client.Create(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	w.policy.sawPod(w.pod(name), worldQueue{w: w, of: "pod"})
	w.evict.pod(w.pod(name))
}

// pass lets time go by, and everybody do what falls due before its end.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.clock.Now().Add(d); ; {
		next, at := task{}, end
		for _, candidate := range slices.SortedFunc(maps.Keys(w.due), compareTasks) {
			if due := w.due[candidate]; due.Before(at) {
				next, at = candidate, due
			}
		}
		if w.evict.fire(at) {
			continue
		}
		if next == (task{}) {
			w.clock.SetTime(end)
			return
		}
		if at.After(w.clock.Now()) {
			w.clock.SetTime(at)
		}
		w.run(next)
	}
}

func compareTasks(a, b task) int {
	return slices.Compare([]string{a.controller, a.Name}, []string{b.controller, b.Name})
}

func (w *world) run(next task) {
	w.t.Helper()
	delete(w.due, next)
	ctx := klog.NewContext(w.t.Context(), discard)
	reconcileIt := w.policy.reconcileNode
	if next.controller == "pod" {
		w.gets++
		reconcileIt = w.policy.reconcilePod
	}
	result, err := reconcileIt(ctx, next.Request)
	q := worldQueue{w: w, of: next.controller}
	switch {
	case err != nil:
		q.AddAfter(next.Request, control.Base)
	case result.RequeueAfter > 0:
		q.AddAfter(next.Request, result.RequeueAfter)
	}
}

// said takes what was written since it was last asked.
func (w *world) said() []string {
	writes := w.writes
	w.writes = nil
	return writes
}

// worldQueue is one of the controllers' work queues in the world's time.
type worldQueue struct {
	control.Queue // nil: what is not overridden must not be called
	w             *world
	of            string
}

func (q worldQueue) Add(r reconcile.Request) { q.AddAfter(r, 0) }

func (q worldQueue) AddAfter(r reconcile.Request, d time.Duration) {
	at, it := q.w.clock.Now().Add(d), task{q.of, r}
	if due, ok := q.w.due[it]; !ok || at.Before(due) {
		q.w.due[it] = at
	}
}

type recorder struct{ w *world }

func (r recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok || ref.Kind != "Node" || ref.APIVersion != "v1" || ref.UID == "" || ref.ResourceVersion != "" ||
		related != nil || action == "" || note == "" || len(args) == 0 {
		r.w.t.Errorf("event regarding %+v, related %v, action %q, note %q", regarding, related, action, note)
	}
	r.w.writes = append(r.w.writes, fmt.Sprintf("event %s %s", eventType, reason))
}

// evictor does as kube-controller-manager 1.36 does (processPodOnNode of its package tainteviction), but for the time
// that it takes to see a change: lag.
type evictor struct {
	w      *world
	lag    time.Duration
	seen   []change // what is yet to be seen
	timers map[string]timer
	gone   []string // "name after 5s", by the time since the world began
}

type change struct {
	at   time.Time
	node string // empty: a Pod's
	pod  string
}

type timer struct{ created, fires time.Time }

func (e *evictor) node(name string) {
	e.seen = append(e.seen, change{at: e.w.clock.Now().Add(e.lag), node: name})
}

func (e *evictor) pod(pod *corev1.Pod) {
	e.seen = append(e.seen, change{at: e.w.clock.Now().Add(e.lag), pod: pod.Name})
}

// fire does the first thing that is due up to a moment, and reports whether there was one.
func (e *evictor) fire(until time.Time) bool {
	if len(e.seen) > 0 && !e.seen[0].at.After(until) {
		c := e.seen[0]
		e.seen = e.seen[1:]
		e.advance(c.at)
		if c.pod != "" {
			e.process(c.pod)
			return true
		}
		var pods corev1.PodList
		if err := e.w.client.List(e.w.t.Context(), &pods, client.MatchingFields{fieldNode: c.node}); err != nil {
			e.w.t.Fatal(err)
		}
		e.w.lists--
		for _, p := range pods.Items {
			e.process(p.Name)
		}
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(e.timers)) {
		if at := e.timers[name].fires; !at.After(until) {
			e.advance(at)
			delete(e.timers, name)
			if err := e.w.client.Delete(e.w.t.Context(), e.w.pod(name)); err != nil {
				e.w.t.Fatal(err)
			}
			e.gone = append(e.gone, fmt.Sprintf("%s after %v", name, at.Sub(begin)))
			return true
		}
	}
	return false
}

func (e *evictor) advance(to time.Time) {
	if to.After(e.w.clock.Now()) {
		e.w.clock.SetTime(to)
	}
}

func (e *evictor) process(name string) {
	pod := e.w.pod(name)
	if pod == nil {
		delete(e.timers, name)
		return
	}
	node := e.w.node(pod.Spec.NodeName)
	if node == nil || len(node.Spec.Taints) == 0 {
		delete(e.timers, name)
		return
	}
	now := e.w.clock.Now()
	bears := bearsFor(pod)[1] // unreachable
	switch _, running := e.timers[name]; {
	case bears == Forever:
		delete(e.timers, name)
	case !running:
		e.timers[name] = timer{now, now.Add(time.Duration(bears) * time.Second)}
	case e.timers[name].created.Equal(now):
		e.timers[name] = timer{now, now.Add(time.Duration(bears) * time.Second)}
	}
}

// ends are of a machine whose clocks are the world's.
func (w *world) ends() ends.Ends {
	return ends.Ends{Clock: ends.Clock{OfDay: w.clock.Now, Ran: w.clock.Now}}
}
