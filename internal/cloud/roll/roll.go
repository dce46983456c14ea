// Package roll keeps ConfigMaps for the API server's admission policies. Such a policy sees only the object that is written and
// one parameter. A ConfigMap of this package is that parameter, and tells the policy what it could not know otherwise.
//
// If the objects themselves were parameters, the API server would evaluate a policy once for each of them, and convert the
// written object each time. A roll is a single parameter with a single entry, a text. The reason is that the API server also
// converts the parameter for each evaluation, at a cost that grows with its number of entries. An empty roll has no ConfigMap, so
// that nothing is evaluated.
//
// A roll lags behind its objects by Delay and a write. Code that must be certain checks for itself, as the controllers do.
package roll

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// Delay gathers objects that change at the same time into one write.
	Delay = 100 * time.Millisecond

	// lookAgain is how often to check whether the ConfigMap is as it was left.
	lookAgain = time.Minute

	// timeout bounds one reconcile. retryMax is the longest wait before a failed one is tried again, before jitter.
	timeout, retryMax = 15 * time.Second, 30 * time.Second

	// fieldOwner is the field manager of the writes.
	fieldOwner = "coordinator-controller"

	// listed is the index value of objects on a roll.
	listed = "listed"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Roll keeps one ConfigMap in edge.NamespaceSystem about objects of one kind. All fields are required.
type Roll[O client.Object] struct {
	// Name is the controller's name.
	Name string
	// ConfigMap is its name.
	ConfigMap string
	// Object and List are of the roll's kind.
	Object O
	List   client.ObjectList
	// Of returns an object's entry on the roll, or false for none. It is called at each change of an object.
	Of func(O) (Entry, bool)

	client client.Client
	reader client.Reader
}

// AddTo registers the controller with a manager, to run while the manager leads. chance spreads its retries.
func (r Roll[O]) AddTo(mgr manager.Manager, chance ends.Chance) error {
	r.client, r.reader = mgr.GetClient(), mgr.GetAPIReader()
	// The controller makes the index at its start: made earlier, it would make the whole manager wait for this kind.
	begin := func(ctx context.Context, q queue) error {
		if err := mgr.GetFieldIndexer().IndexField(ctx, r.Object, r.index(), r.isListed); err != nil {
			return fmt.Errorf("index of %T for ConfigMap %s: %w", r.Object, r.ConfigMap, err)
		}
		q.Add(r.request())
		return nil
	}
	return control.Controller{
		Name: r.Name, Reconciler: r, Timeout: timeout, RetryMax: retryMax, Chance: chance,
		Watch: []source.Source{source.Func(begin), source.Kind(mgr.GetCache(), r.Object, r.handler())},
	}.AddTo(mgr)
}

func (r Roll[O]) request() reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: edge.NamespaceSystem, Name: r.ConfigMap}}
}

// index returns the name of an index that saves a look from reading all objects of the kind.
func (r Roll[O]) index() string { return "roll." + r.ConfigMap }

func (r Roll[O]) isListed(o client.Object) []string {
	if obj, ok := o.(O); ok {
		if _, on := r.Of(obj); on {
			return []string{listed}
		}
	}
	return nil
}

// handler asks for a reconcile when an object joins the roll, leaves it, or changes its entry.
func (r Roll[O]) handler() handler.TypedFuncs[O, reconcile.Request] {
	when := func(news bool, q queue) {
		if news {
			q.AddAfter(r.request(), Delay)
		}
	}
	on := func(o O) bool { _, on := r.Of(o); return on }
	return handler.TypedFuncs[O, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[O], q queue) { when(on(e.Object), q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[O], q queue) {
			was, before := r.Of(e.ObjectOld)
			is, now := r.Of(e.ObjectNew)
			when(before != now || was != is, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[O], q queue) { when(on(e.Object), q) },
	}
}

// Reconcile writes the ConfigMap as it should be. It makes one write, or none if it already is.
func (r Roll[O]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	said, err := r.text(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var have corev1.ConfigMap
	err = r.reader.Get(ctx, req.NamespacedName, &have)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read ConfigMap %s: %w", req, err)
	}
	if said == "" {
		if err != nil {
			return reconcile.Result{}, nil //nolint:nilerr // already absent
		}
		return reconcile.Result{}, r.remove(ctx, &have)
	}
	if err == nil && have.Data[edge.RollEntry] == said {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	want := corev1apply.ConfigMap(req.Name, req.Namespace).WithData(map[string]string{edge.RollEntry: said})
	if err := r.client.Apply(ctx, want, client.ForceOwnership, client.FieldOwner(fieldOwner)); err != nil {
		return reconcile.Result{}, fmt.Errorf("apply ConfigMap %s: %w", req, err)
	}
	return reconcile.Result{RequeueAfter: lookAgain}, nil
}

func (r Roll[O]) remove(ctx context.Context, m *corev1.ConfigMap) error {
	err := r.client.Delete(ctx, m, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ConfigMap %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

// text returns what the roll must say, from the cache.
func (r Roll[O]) text(ctx context.Context) (string, error) {
	list, ok := r.List.DeepCopyObject().(client.ObjectList)
	if !ok {
		return "", fmt.Errorf("%T is no list", r.List)
	}
	in := client.MatchingFields{r.index(): listed}
	if err := r.client.List(ctx, list, in, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the objects on the roll %s: %w", r.ConfigMap, err)
	}
	var entries []Entry
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if obj, ok := o.(O); ok {
			if e, on := r.Of(obj); on {
				entries = append(entries, e)
			}
		}
		return nil
	})
	said, out := text(entries, maxText)
	if out > 0 {
		klog.FromContext(ctx).Info("Left entries out of a roll that are not names or do not fit; policies do not know of them",
			"configMap", r.ConfigMap, "leftOut", out, "entries", len(entries))
	}
	return said, err
}
