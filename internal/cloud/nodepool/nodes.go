package nodepool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
)

// kindPool is the kind of most objects that Events are about.
var kindPool = v1beta2.GroupVersion.WithKind("NodePool")

// nodes is the controller that writes Nodes.
type nodes struct{ cfg Config }

// Reconcile gives a Node what its pool wants. It makes at most two writes, and none if the Node already has it.
func (n *nodes) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := n.cfg.Client.Get(ctx, r.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read Node %s: %w", r.Name, err)
	}
	if node.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	read := node
	pool, err := n.pool(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if node, err = n.shedPrevious(ctx, node, pool); err == nil {
		err = n.write(ctx, node, WantedBy(pool))
	}
	n.announce(read, pool, err)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// pool returns a Node's NodePool; nil if there is none.
func (n *nodes) pool(ctx context.Context, node *corev1.Node) (*v1beta2.NodePool, error) {
	name := poolOf(node)
	if name == "" {
		return nil, nil //nolint:nilnil // as the comment says
	}
	pool := &v1beta2.NodePool{}
	if err := n.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // as the comment says
		}
		return nil, fmt.Errorf("read NodePool %s: %w", name, err)
	}
	return pool, nil
}

// write writes the taints first, because they keep Pods off.
func (n *nodes) write(ctx context.Context, node *corev1.Node, w Wanted) error {
	log := klog.FromContext(ctx).WithValues("node", klog.KRef("", node.Name), "pool", poolOf(node))
	attributes := attributesDiffer(node, w)
	if plan, differs := planTaints(node, w.Taints); differs {
		if err := n.writeTaints(ctx, node, plan); err != nil {
			return err
		}
		log.Info("Wrote taints of the pool", "taints", plan.Memo)
	}
	if attributes {
		if err := n.writeAttributes(ctx, node, w); err != nil {
			return err
		}
		log.Info("Wrote labels and annotations of the pool", "keys", w.memo())
	}
	return nil
}

func (n *nodes) writeTaints(ctx context.Context, node *corev1.Node, plan TaintPlan) error {
	base := node.DeepCopy()
	node.Spec.Taints = plan.Taints
	if plan.Memo == "" {
		delete(node.Annotations, AnnotationTaints)
	} else {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, AnnotationTaints, plan.Memo)
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := n.cfg.Client.Patch(ctx, node, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("patch taints of Node %s: %w", base.Name, err)
	}
	return nil
}

// writeAttributes applies all that is wanted. Server-side apply removes what was applied before and no longer is.
func (n *nodes) writeAttributes(ctx context.Context, node *corev1.Node, w Wanted) error {
	annotations := maps.Clone(w.Annotations)
	if memo := w.memo(); memo != "" {
		if annotations == nil {
			annotations = make(map[string]string, 1)
		}
		annotations[AnnotationAttributes] = memo
	}
	wanted := apply.Node(node.Name).WithUID(node.UID).WithLabels(w.Labels).WithAnnotations(annotations)
	if err := n.cfg.Client.Apply(ctx, wanted, client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply labels and annotations to Node %s: %w", node.Name, err)
	}
	return nil
}

// announce says what a person must know: the Node's label names no NodePool, or the API server refuses what the pool wants on the
// Node. The recorder merges equal Events.
func (n *nodes) announce(node *corev1.Node, pool *v1beta2.NodePool, err error) {
	name, about := poolOf(node), objects.Regarding(node, corev1.SchemeGroupVersion.WithKind("Node"))
	switch {
	case name != "" && pool == nil:
		n.cfg.Events.Eventf(about, nil, corev1.EventTypeWarning, "NodePoolNotFound", "JoinNodePool",
			"The node's label names pool %s, but there is no NodePool of that name. Create it, or change the label.", name)
	case pool != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)):
		n.cfg.Events.Eventf(objects.Regarding(pool, kindPool), about, corev1.EventTypeWarning, "NodeRefused", "WriteNode",
			"The API server refuses what the NodePool wants on Node %s: %v", node.Name, err)
	}
}

// nodeHandler enqueues a Node when a part of it that matters here changes.
func (n *nodes) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	return control.On(changed, func(_ context.Context, node *corev1.Node, q control.Queue) {
		if concerns(node) {
			q.Add(control.Request(node.Name))
		}
	})
}

// concerns reports whether a Node is in a pool, or still has something from one.
func concerns(node *corev1.Node) bool {
	return poolOf(node) != "" || slices.ContainsFunc([]string{AnnotationAttributes, AnnotationTaints, AnnotationPrevious},
		func(key string) bool { return node.Annotations[key] != "" })
}

// changed reports whether any input of a plan changed in a Node.
func changed(a, b *corev1.Node) bool {
	same := func(x, y corev1.Taint) bool { return id(x) == id(y) && x.Value == y.Value }
	return a.UID != b.UID || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, same)
}

// poolHandler enqueues the nodes of a pool that comes, goes or changes its spec.
func (n *nodes) poolHandler() handler.TypedFuncs[*v1beta2.NodePool, reconcile.Request] {
	return control.On(func(was, is *v1beta2.NodePool) bool { return was.Generation != is.Generation || was.UID != is.UID },
		func(ctx context.Context, pool *v1beta2.NodePool, q control.Queue) {
			members, err := control.NodesOf(ctx, n.cfg.Client, pool.Name)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Failed to list the nodes of a pool")
				return
			}
			for i := range members {
				q.Add(control.Request(members[i].Name))
			}
		})
}
