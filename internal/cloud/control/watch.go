package control

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is what a controller takes its requests from.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Request asks to reconcile an object of this name, in no namespace.
func Request[T ~string](name T) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: string(name)}}
}

// On returns a handler that calls enqueue for an object that comes or goes. For a change that matters, the handler calls enqueue
// twice: for the object as it was, and as it is. changed says whether a change matters; nil means that each one does.
func On[T client.Object](
	changed func(was, is T) bool, enqueue func(context.Context, T, Queue),
) handler.TypedFuncs[T, reconcile.Request] {
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q Queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q Queue) {
			if changed == nil || changed(e.ObjectOld, e.ObjectNew) {
				enqueue(ctx, e.ObjectOld, q)
				enqueue(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q Queue) { enqueue(ctx, e.Object, q) },
	}
}
