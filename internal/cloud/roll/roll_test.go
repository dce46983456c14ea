package roll

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/edge"
)

const (
	name   = "test-roll"
	poolOf = "pool"
)

// pooled is a Node that is on the roll if it has a pool.
func pooled(name, pool string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if pool != "" {
		n.Labels = map[string]string{poolOf: pool}
	}
	return n
}

// world is a roll of Nodes by their pools, with an API server that counts.
type world struct {
	t      *testing.T
	client client.Client
	roll   Roll[*corev1.Node]
	writes int
	fail   error // of all requests for ConfigMaps
}

func newWorld(t *testing.T, nodes ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, roll: Roll[*corev1.Node]{
		Name: name, ConfigMap: name, Object: &corev1.Node{}, List: &corev1.NodeList{},
		Of: func(n *corev1.Node) (Entry, bool) { return Entry{n.Labels[poolOf], n.Name}, n.Labels[poolOf] != "" },
	}}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(nodes...).
		WithIndex(&corev1.Node{}, w.roll.index(), w.roll.isListed).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				return errors.Join(w.fail, c.Get(ctx, key, o, opts...))
			},
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				w.writes++
				return errors.Join(w.fail, c.Apply(ctx, o, opts...))
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				w.writes++
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	w.roll.client, w.roll.reader = w.client, w.client
	return w
}

// says looks, and wants the ConfigMap to say this after so many writes; "": that it is not there.
func (w *world) says(want string, writes int) {
	w.t.Helper()
	w.writes = 0
	result, err := w.roll.Reconcile(w.t.Context(), w.roll.request())
	if err != nil {
		w.t.Fatal(err)
	}
	var m corev1.ConfigMap
	err = w.client.Get(w.t.Context(), w.roll.request().NamespacedName, &m)
	if client.IgnoreNotFound(err) != nil || m.Data[edge.RollEntry] != want || apierrors.IsNotFound(err) != (want == "") {
		w.t.Errorf("it says %q (%v), want %q", m.Data, err, want)
	}
	if w.writes != writes || (result.RequeueAfter == 0) != (want == "") {
		w.t.Errorf("%d writes, want %d; again in %v", w.writes, writes, result.RequeueAfter)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestRoll(t *testing.T) {
	w := newWorld(t, pooled("n1", ""), pooled("n2", "b"), pooled("n3", "a"), pooled("n4", "a"))
	w.says("\na=n3\nb=n2\n", 1)
	w.says("\na=n3\nb=n2\n", 0)
	w.must(w.client.Delete(t.Context(), pooled("n3", "")))
	w.says("\na=n4\nb=n2\n", 1)

	// What somebody does to it is undone.
	m := &corev1.ConfigMap{}
	w.must(w.client.Get(t.Context(), w.roll.request().NamespacedName, m))
	m.Data[edge.RollEntry] = "nothing"
	w.must(w.client.Update(t.Context(), m))
	w.says("\na=n4\nb=n2\n", 1)
	w.must(w.client.Delete(t.Context(), m))
	w.says("\na=n4\nb=n2\n", 1)

	for _, n := range []string{"n2", "n4"} {
		w.must(w.client.Delete(t.Context(), pooled(n, "")))
	}
	w.says("", 1)
	w.says("", 0)
}

func TestErrors(t *testing.T) {
	w := newWorld(t, pooled("n1", "a"))
	w.fail = errors.New("it does not answer")
	if _, err := w.roll.Reconcile(t.Context(), w.roll.request()); !errors.Is(err, w.fail) {
		t.Errorf("Reconcile = %v", err)
	}
	w.roll.client = fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	if _, err := w.roll.Reconcile(t.Context(), w.roll.request()); err == nil {
		t.Error("Reconcile succeeds without a list of Nodes")
	}
}

// delayed is a queue that only counts.
type delayed struct {
	queue
	t     *testing.T
	added int
}

func (d *delayed) AddAfter(r reconcile.Request, after time.Duration) {
	if r.Name != name || after != Delay {
		d.t.Errorf("%v after %v", r, after)
	}
	d.added++
}

func TestOnlyChangesCount(t *testing.T) {
	w, q := newWorld(t), &delayed{t: t}
	h := w.roll.handler()
	expect := func(what string, want bool, do func()) {
		t.Helper()
		q.added = 0
		if do(); (q.added > 0) != want {
			t.Errorf("%s: asked for %d times", what, q.added)
		}
	}
	for what, tt := range map[string]struct {
		was, is string
		want    bool
	}{
		"comes on": {"", "a", true}, "goes off": {"a", "", true}, "is on otherwise": {"a", "b", true},
		"stays on": {"a", "a", false}, "stays off": {"", "", false},
	} {
		expect(what, tt.want, func() {
			h.Update(t.Context(),
				event.TypedUpdateEvent[*corev1.Node]{ObjectOld: pooled("n", tt.was), ObjectNew: pooled("n", tt.is)}, q)
		})
	}
	for pool, want := range map[string]bool{"a": true, "": false} {
		expect("new in "+pool, want, func() {
			h.Create(t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: pooled("n", pool)}, q)
		})
		expect("deleted in "+pool, want, func() {
			h.Delete(t.Context(), event.TypedDeleteEvent[*corev1.Node]{Object: pooled("n", pool)}, q)
		})
	}
}
