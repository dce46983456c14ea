package heartbeat

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

const (
	rollName = "heartbeat-roll"

	// rollDelay gathers nodes that change at the same time into one write.
	rollDelay = 50 * time.Millisecond

	// rollAgain is how often the roll is written though nothing has changed, should somebody have changed it.
	rollAgain = time.Minute
)

// roll keeps the ConfigMap that names the nodes which are shown NotReady, for the policy that keeps their Pods ready: what
// it is asked about is a Pod, and of other objects a policy sees only its parameter. One ConfigMap costs the API server one
// evaluation for each write of a Pod's status, where the Nodes themselves as parameters would cost one each; and none at
// all while there is no such node.
type roll struct{ client client.Client }

var rollRequest = reconcile.Request{NamespacedName: client.ObjectKey{
	Namespace: edge.NamespaceSystem, Name: edge.ConfigMapShownNotReady,
}}

func (r *roll) addTo(mgr manager.Manager) error {
	return control.Controller{
		Name: rollName, Reconciler: r, Timeout: reconcileTimeout, RetryMax: retryMax,
		Watch: []source.Source{
			source.Func(func(_ context.Context, q queue) error { q.Add(rollRequest); return nil }),
			source.Kind(mgr.GetCache(), &corev1.Node{}, rollHandler()),
		},
	}.AddTo(mgr)
}

// rollHandler asks for the roll where a Node comes onto it or goes off.
func rollHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	when := func(news bool, q queue) {
		if news {
			q.AddAfter(rollRequest, rollDelay)
		}
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) {
			when(isShown(e.Object), q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			when(isShown(e.ObjectOld) != isShown(e.ObjectNew), q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			when(isShown(e.Object), q)
		},
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *roll) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list Nodes: %w", err)
	}
	shown := make(map[string]string)
	for i := range nodes.Items {
		if n := &nodes.Items[i]; isShown(n) {
			shown[n.Name] = string(poolOf(n))
		}
	}
	if len(shown) == 0 {
		err := r.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: rollRequest.Namespace, Name: rollRequest.Name,
		}})
		if err != nil && !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("delete ConfigMap %s: %w", rollRequest, err)
		}
		return reconcile.Result{}, nil
	}
	config := corev1apply.ConfigMap(rollRequest.Name, rollRequest.Namespace).WithData(shown)
	if err := r.client.Apply(ctx, config, client.ForceOwnership, client.FieldOwner(FieldOwner)); err != nil {
		return reconcile.Result{}, fmt.Errorf("apply ConfigMap %s: %w", rollRequest, err)
	}
	return reconcile.Result{RequeueAfter: rollAgain}, nil
}
