package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/cloud/precedence"
)

// reconcileStatus says in a PoolSettings what became of it.
func (c *Controller) reconcileStatus(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	s := &v1alpha1.PoolSettings{}
	if err := c.cfg.Client.Get(ctx, r.NamespacedName, s); apierrors.IsNotFound(err) {
		c.metrics.forget(r.Name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read PoolSettings %s: %w", r.Name, err)
	}
	f, complete, err := c.facts(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !complete {
		return reconcile.Result{}, nil // each pool that is told, or can't be, wakes it
	}
	status, n := statusOf(f, metav1.NewTime(c.cfg.Clock.Now()))
	c.metrics.stands(s.Name, n)
	return reconcile.Result{}, c.say(ctx, s, status)
}

// facts collects the input of statusOf. complete is false until this process has looked at all pools that s selects, because
// after a start it does not know what they were told.
func (c *Controller) facts(ctx context.Context, s *v1alpha1.PoolSettings) (f facts, complete bool, err error) {
	f.settings, complete = s, true
	_, f.badly = metav1.LabelSelectorAsSelector(s.Spec.NodePoolSelector)
	all, pools := &v1alpha1.PoolSettingsList{}, &v1beta2.NodePoolList{}
	if err := c.cfg.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return f, false, fmt.Errorf("list PoolSettings: %w", err)
	}
	if err := c.cfg.Client.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return f, false, fmt.Errorf("list NodePools: %w", err)
	}
	made, err := c.coordinators(ctx)
	if err != nil {
		return f, false, err
	}
	f.withCoordinators = c.cfg.Coordinators
	for i := range pools.Items {
		pool := &pools.Items[i]
		if ok, err := precedence.Selects(s, pool); !ok || err != nil {
			continue
		}
		_, clashes, err := merge(pool, all.Items)
		if err != nil {
			return f, false, err
		}
		f.clashes = append(f.clashes, clashes[s.Name]...)
		nodes, err := control.NodesOf(ctx, c.cfg.Client, pool.Name)
		if err != nil {
			return f, false, err
		}
		e, known := c.ledger.entry(pool.Name)
		complete = complete && known
		its, err := c.siteOf(pool, all.Items, made)
		if err != nil {
			return f, false, err
		}
		f.pools = append(f.pools, poolFacts{pool.Name, e.record, e.failed, nodes, its})
	}
	slices.SortFunc(f.pools, func(a, b poolFacts) int { return strings.Compare(a.name, b.name) })
	return f, complete, nil
}

// say writes the status if it differs, and records Events about what somebody may have to act on.
func (c *Controller) say(ctx context.Context, s *v1alpha1.PoolSettings, status v1alpha1.PoolSettingsStatus) error {
	if equality.Semantic.DeepEqual(s.Status, status) {
		return nil
	}
	base := s.DeepCopy()
	s.Status = status
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := c.cfg.Client.Status().Patch(ctx, s, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("write status of PoolSettings %s: %w", s.Name, err)
	}
	for _, now := range status.Conditions {
		was := meta.FindStatusCondition(base.Status.Conditions, now.Type)
		changed := was == nil || was.Reason != now.Reason || was.ObservedGeneration != now.ObservedGeneration
		if kind := eventType(now.Reason); kind != "" && changed {
			about := objects.Regarding(s, v1alpha1.GroupVersion.WithKind("PoolSettings"))
			c.cfg.Events.Eventf(about, nil, kind, now.Reason, "Reconcile", "%s", now.Message)
		}
	}
	return nil
}

// eventType says of which type an Event about a condition with this reason is; empty means that there is none.
func eventType(reason string) string {
	switch reason {
	case ReasonNotTold, ReasonBadSelector, ReasonRefused, ReasonRestartNeeded, ReasonConflict, ReasonBadSettings,
		ReasonControllerOff, ReasonPoolsWithout:
		return corev1.EventTypeWarning
	case ReasonAllNodes, ReasonAllCoordinators:
		return corev1.EventTypeNormal
	}
	return ""
}
