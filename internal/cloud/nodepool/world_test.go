package nodepool

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// rights are what the comment on this package says that the controllers need.
var rights = []rbacv1.PolicyRule{
	cloudtest.May("", "nodes", "get", "list", "watch", "patch"),
	cloudtest.May("apps.openyurt.io", "nodepools", "get", "list", "watch", "patch"),
	cloudtest.May("apps.openyurt.io", "nodepools/status", "update"),
	cloudtest.May("events.k8s.io", "events", "create", "patch"),
}

// world is an API server with the controllers, and what a test does there.
type world struct {
	t *testing.T
	client.WithWatch
	cfg  *rest.Config
	sent *cloudtest.Requests // what the controllers send
	stop func()

	controller *Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	admin := cloudtest.Start(t)
	w := &world{t: t, WithWatch: cloudtest.Client(t, admin)}
	w.cfg, w.sent = cloudtest.Count(cloudtest.Restricted(t, admin, "nodepool", rights...))
	w.start()
	return w
}

// start runs the controllers, with a cache of Nodes that has no more than they ask for.
func (w *world) start() {
	w.t.Helper()
	cached := Cached()
	cached[&corev1.Node{}] = cache.ByObject{Transform: func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
			DeletionTimestamp: node.DeletionTimestamp, Annotations: map[string]string{},
		}}
		for _, key := range CachedAnnotations(node) {
			if v, ok := node.Annotations[key]; ok {
				kept.Annotations[key] = v
			}
		}
		kept.Spec.Taints, kept.Status.Conditions = node.Spec.Taints, node.Status.Conditions
		return kept, nil
	}}
	w.stop = cloudtest.Manager(w.t, w.cfg, manager.Options{Cache: cache.Options{ByObject: cached}},
		func(mgr manager.Manager) error {
			w.controller = New(Config{
				Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("test"),
			})
			return errors.Join(control.IndexNodes(mgr), w.controller.AddTo(mgr))
		})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pool(name string, spec v1beta2.NodePoolSpec) *v1beta2.NodePool {
	w.t.Helper()
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	w.must(w.Create(w.t.Context(), p))
	return p
}

func (w *world) node(name, pool string) *corev1.Node {
	w.t.Helper()
	n := member(name, corev1.ConditionTrue)
	n.Labels = map[string]string{"own": "x"}
	if pool != "" {
		n.Labels[edge.LabelNodePool] = pool
	}
	w.must(w.Create(w.t.Context(), &n))
	return &n
}

// change updates an object as it is now.
func change[T client.Object](w *world, obj T, how func(T)) {
	w.t.Helper()
	cloudtest.Eventually(w.t, "a change", func() error {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		how(obj)
		return w.Update(w.t.Context(), obj)
	})
}

func move(w *world, node *corev1.Node, pool string) {
	w.t.Helper()
	change(w, node, func(n *corev1.Node) {
		delete(n.Labels, edge.LabelNodePool)
		if pool != "" {
			n.Labels[edge.LabelNodePool] = pool
		}
	})
}

// has waits until a Node has these, besides its own, as "label k=v", "annotation k=v", "taint k=v:effect", and none of ours
// besides.
func (w *world) has(node string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	cloudtest.Eventually(w.t, "node "+node, func() error {
		n := &corev1.Node{}
		if err := w.Get(w.t.Context(), client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		var got []string
		for k, v := range n.Labels {
			if k != "own" && k != edge.LabelNodePool {
				got = append(got, "label "+k+"="+v)
			}
		}
		for k, v := range n.Annotations {
			if k != AnnotationAttributes && k != AnnotationTaints {
				got = append(got, "annotation "+k+"="+v)
			}
		}
		for _, t := range n.Spec.Taints {
			if t.Key != corev1.TaintNodeNotReady {
				got = append(got, fmt.Sprintf("taint %s=%s:%s", t.Key, t.Value, t.Effect))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it has %q, want %q", got, want)
		}
		if len(want) == 0 && (n.Annotations[AnnotationAttributes] != "" || n.Annotations[AnnotationTaints] != "") {
			return fmt.Errorf("it still remembers: %v", n.Annotations)
		}
		return nil
	})
}

// says waits until a NodePool's status is so, of its newest spec.
func (w *world) says(pool string, ready, unready int32, nodes ...string) {
	w.t.Helper()
	cloudtest.Eventually(w.t, "pool "+pool, func() error {
		p := &v1beta2.NodePool{}
		if err := w.Get(w.t.Context(), client.ObjectKey{Name: pool}, p); err != nil {
			return err
		}
		want := v1beta2.NodePoolStatus{
			ObservedGeneration: p.Generation, ReadyNodeNum: ready, UnreadyNodeNum: unready, Nodes: nodes,
		}
		is := p.DeepCopy()
		is.Status.Conditions = nil
		want.Conditions = conditions(is, true, metav1.Time{})
		if !equal(p.Status, want) {
			return fmt.Errorf("it says %+v, want %+v", p.Status, want)
		}
		return nil
	})
}

// event waits for an Event with this reason, and in its note this.
func (w *world) event(object, reason, note string) {
	w.t.Helper()
	cloudtest.Eventually(w.t, "Event "+reason, func() error {
		if len(w.events(object, reason, note)) == 0 {
			return fmt.Errorf("of %s there is none that says %q", object, note)
		}
		return nil
	})
}

func (w *world) events(object, reason, note string) []eventsv1.Event {
	w.t.Helper()
	all := &eventsv1.EventList{}
	w.must(w.List(w.t.Context(), all))
	return slices.DeleteFunc(all.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Name != object || e.Reason != reason || !strings.Contains(e.Note, note)
	})
}

func (w *world) gone(obj client.Object) {
	w.t.Helper()
	cloudtest.Eventually(w.t, obj.GetName(), func() error {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
}

// quiet fails if the controllers write within a while. They have been seen to be done before.
func (w *world) quiet() {
	w.t.Helper()
	cloudtest.Quiet(w.t, w.sent.Writes, 5*settle)
}
