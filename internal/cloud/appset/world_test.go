package appset

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/cloud/cloudtest"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// rights are what the comment on this package says that the controller needs.
var rights = []rbacv1.PolicyRule{
	cloudtest.May("apps.openyurt.io", "yurtappsets", "get", "list", "watch"),
	cloudtest.May("apps.openyurt.io", "yurtappsets/status", "update"),
	cloudtest.May("apps.openyurt.io", "yurtappsets/finalizers", "update"),
	cloudtest.May("apps.openyurt.io", "nodepools", "get", "list", "watch"),
	cloudtest.May("apps", "deployments", "get", "list", "watch", "create", "patch", "delete"),
	cloudtest.May("apps", "statefulsets", "get", "list", "watch", "create", "patch", "delete"),
	cloudtest.May("apps", "controllerrevisions", "get", "list", "watch", "create", "patch", "delete"),
	cloudtest.May("", "nodes", "get", "list", "watch"),
	cloudtest.May("", "pods", "list", "create", "delete"),
	cloudtest.May("events.k8s.io", "events", "create", "patch"),
}

// world is a namespace of an API server with the controller, and what a test does there. Pools are the test's own by a label.
type world struct {
	t *testing.T
	client.WithWatch
	namespace string
	cfg       *rest.Config
	sent      *cloudtest.Requests // what the controller sends
	stop      func()

	controller *Controller
}

func newWorld(t *testing.T, namespace string) *world {
	t.Helper()
	admin := cloudtest.Start(t)
	w := &world{t: t, WithWatch: cloudtest.Client(t, admin), namespace: namespace}
	w.must(w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	w.cfg, w.sent = cloudtest.Count(cloudtest.Restricted(t, admin, "appset", rights...))
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.stop = cloudtest.Manager(w.t, w.cfg, manager.Options{Cache: cache.Options{
		ByObject: Cached(), DefaultNamespaces: map[string]cache.Config{w.namespace: {}},
	}}, func(mgr manager.Manager) error {
		w.controller = New(Config{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("test"), Clock: clock.RealClock{},
		})
		return w.controller.AddTo(mgr)
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pool makes a NodePool that is named after the namespace, and goes when the test ends.
func (w *world) pool(name string, pairs ...string) string {
	w.t.Helper()
	p := nodePool(w.namespace+"-"+name, append(pairs, "test="+w.namespace)...)
	w.must(w.Create(w.t.Context(), p))
	return p.Name
}

func (w *world) every() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"test": w.namespace}}
}

func (w *world) create(set *v1beta1.YurtAppSet) *v1beta1.YurtAppSet {
	w.t.Helper()
	set.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: set.Name}
	w.must(w.Create(w.t.Context(), set))
	return set
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

func (w *world) deployments() []appsv1.Deployment {
	w.t.Helper()
	all := &appsv1.DeploymentList{}
	w.must(w.List(w.t.Context(), all, client.InNamespace(w.namespace)))
	return all.Items
}

// runs waits until these Deployments, and no others, are there, as "NAME REPLICAS IMAGE".
func (w *world) runs(want ...string) {
	w.t.Helper()
	cloudtest.Eventually(w.t, "Deployments", func() error {
		got := []string{}
		for _, d := range w.deployments() {
			got = append(got, fmt.Sprintf("%s %d %s", d.Name, *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}

// play does what Kubernetes' own controllers do: all Deployments are ready.
func (w *world) play() {
	w.t.Helper()
	for _, d := range w.deployments() {
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: *d.Spec.Replicas, ReadyReplicas: *d.Spec.Replicas,
			AvailableReplicas: *d.Spec.Replicas, UpdatedReplicas: *d.Spec.Replicas,
		}
		w.must(w.Status().Update(w.t.Context(), &d))
	}
}

// says waits until a status of the newest spec has these conditions True, and no others, and returns it.
func (w *world) says(set *v1beta1.YurtAppSet, want ...v1beta1.YurtAppSetConditionType) v1beta1.YurtAppSetStatus {
	w.t.Helper()
	slices.Sort(want)
	found := &v1beta1.YurtAppSet{}
	cloudtest.Eventually(w.t, "the status of "+set.Name, func() error {
		if err := w.Get(w.t.Context(), client.ObjectKeyFromObject(set), found); err != nil {
			return err
		}
		got := []v1beta1.YurtAppSetConditionType{}
		for _, c := range found.Status.Conditions {
			if c.Type == v1beta1.AppSetReady || c.Type == v1beta1.AppSetStalled {
				continue // they say it again
			}
			if c.Status == corev1.ConditionTrue {
				got = append(got, c.Type)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) || found.Status.ObservedGeneration != found.Generation {
			return fmt.Errorf("it says %+v, want %v", found.Status, want)
		}
		return nil
	})
	return found.Status
}

const (
	poolFound  = v1beta1.AppSetPoolFound
	dispatched = v1beta1.AppSetAppDispatched
	updated    = v1beta1.AppSetAppUpdated
	deleted    = v1beta1.AppSetAppDeleted
	isReady    = v1beta1.AppSetAppReady
)

// event waits for an Event with this reason, and in its note this.
func (w *world) event(reason, note string) {
	w.t.Helper()
	cloudtest.Eventually(w.t, "Event "+reason, func() error {
		all := &eventsv1.EventList{}
		if err := w.List(w.t.Context(), all, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Reason == reason && strings.Contains(e.Note, note) {
				return nil
			}
		}
		return fmt.Errorf("there is none that says %q", note)
	})
}

// quiet fails if the controller writes within a while. It has been seen to be done before.
func (w *world) quiet() {
	w.t.Helper()
	cloudtest.Quiet(w.t, w.sent.Writes, 5*settle)
}
