package appset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/objects"
)

// Reconcile brings the workloads of a YurtAppSet to what is wanted, and reports the progress in its status.
func (c *Controller) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	set := &v1beta1.YurtAppSet{}
	if err := c.cfg.Client.Get(ctx, r.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(r.NamespacedName)
			c.metrics.forget(r.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read YurtAppSet %s: %w", r.NamespacedName, err)
	}
	if set.DeletionTimestamp != nil {
		c.metrics.forget(r.NamespacedName)
		return reconcile.Result{}, nil // Kubernetes collects what it owns
	}
	pools := &v1beta2.NodePoolList{}
	if err := c.cfg.Client.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list NodePools: %w", err)
	}
	live, err := c.live(ctx, set)
	if err != nil {
		return reconcile.Result{}, err
	}
	w := &World{Revision: set.Status.CurrentRevision}
	var selected Selection
	var failed error
	var after time.Duration
	if selected, w.BadPools = Select(&set.Spec, pools.Items); w.BadPools == nil {
		w.Missing = selected.Missing
		after, failed = c.run(ctx, set, selected, live, w)
	}
	if failed != nil && w.Outcomes == nil && len(selected.Pools) > 0 {
		return reconcile.Result{}, failed // nothing is known: the status stays
	}
	c.metrics.waiting.Set(r.NamespacedName, len(w.Held.Objects))
	status := Judge(set, w, metav1.NewTime(c.cfg.Clock.Now()))
	if w.BadPools == nil {
		outdated := len(w.Outcomes) - int(status.UpdatedWorkloads)
		for _, o := range w.Outcomes {
			if w.Waiting[o.Pool] && o.Message == "" {
				outdated--
			}
		}
		c.metrics.stands(r.NamespacedName, outdated, w.Stopped != "")
	}
	err = c.writeStatus(ctx, set, status)
	if err = errors.Join(failed, err); err != nil {
		return reconcile.Result{}, err
	}
	if slices.ContainsFunc(w.Outcomes, func(o Outcome) bool { return o.Message != "" }) && (after == 0 || after > mendAfter) {
		after = mendAfter
	}
	after = wait.Jitter(after, 1)
	if again := w.Held.Again; again > 0 && (after == 0 || after > again) {
		after = again
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// run updates workloads and history, and records the outcome in w. It returns when to look again even if nothing changes; zero
// means never. It returns only errors that may pass by themselves.
func (c *Controller) run(ctx context.Context, set *v1beta1.YurtAppSet, selected Selection, live map[ref]*Live, w *World,
) (after time.Duration, err error) {
	pools := selected.Pools
	wanted := c.render(set, pools, hadBy(set, live))
	var unrecorded error
	w.Revision, unrecorded = c.record(ctx, set)
	r := &rollout{Controller: c, set: set, wanted: wanted, live: live, selected: selected}
	defer c.endTurns(set.UID)
	if err := r.decide(ctx); err != nil {
		return 0, errors.Join(unrecorded, err)
	}
	w.Stopped, w.Waiting = r.stopped(), r.waiting()
	w.Outcomes = make([]Outcome, len(wanted))
	failed := make([]error, len(wanted))
	workqueue.ParallelizeUntil(ctx, writers, len(wanted), func(i int) {
		if w.Outcomes[i], failed[i] = r.outcome(i), nil; r.steps[i] == Apply {
			w.Outcomes[i], failed[i] = c.bring(ctx, set, pools[i], &wanted[i], live)
		}
	})
	for i := range wanted { // those that were not reached before ctx ended
		if w.Outcomes[i].Pool == "" {
			w.Outcomes[i] = Outcome{wanted[i].Pool, wanted[i].Name, live[wanted[i].ref()], "not looked at yet"}
			failed[i] = context.Cause(ctx)
		}
	}
	c.keepOnly(client.ObjectKeyFromObject(set), wanted)
	return r.after(), errors.Join(unrecorded, firstOf(failed), r.pull(ctx), c.removeOthers(ctx, set, selected, wanted, live, w))
}

// firstOf joins errors into one. It names only the first, because a thousand pools may share it.
func firstOf(failed []error) error {
	count := 0
	var first error
	for _, err := range failed {
		if err == nil {
			continue
		}
		if count++; first == nil {
			first = err
		}
	}
	if count > 1 {
		return fmt.Errorf("%w (and in %d more pools)", first, count-1)
	}
	return first
}

// ref names a workload within a namespace.
type ref struct{ kind, name string }

func (w *Wanted) ref() ref { return ref{w.Kind, w.Name} }

// live returns the workloads that the YurtAppSet controls.
func (c *Controller) live(ctx context.Context, set *v1beta1.YurtAppSet) (map[ref]*Live, error) {
	where := []client.ListOption{client.InNamespace(set.Namespace), client.MatchingFields{ownerIndex: string(set.UID)}}
	deployments, stateful := &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}
	if err := errors.Join(c.cfg.Client.List(ctx, deployments, where...), c.cfg.Client.List(ctx, stateful, where...)); err != nil {
		return nil, fmt.Errorf("list the workloads of YurtAppSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	all := make(map[ref]*Live)
	add := func(o client.Object) {
		if metav1.IsControlledBy(o, set) {
			l := liveOf(o)
			all[ref{l.Kind, l.Name}] = l
		}
	}
	for i := range stateful.Items {
		add(&stateful.Items[i])
	}
	for i := range deployments.Items {
		add(&deployments.Items[i])
	}
	return all, nil
}

// bring makes one pool's workload as it is wanted. It returns only errors that may pass by themselves. All others are in the
// Outcome's message.
func (c *Controller) bring(ctx context.Context, set *v1beta1.YurtAppSet, pool *v1beta2.NodePool, w *Wanted, all map[ref]*Live,
) (Outcome, error) {
	key := client.ObjectKeyFromObject(set)
	o := Outcome{Pool: w.Pool, Name: w.Name, Live: all[w.ref()]}
	if w.Err != nil {
		o.Message = cut(w.Err.Error())
		return o, nil //nolint:nilerr // a person must mend it
	}
	if o.Live != nil && o.Live.Deleting {
		o.Message = "the previous workload is still being deleted"
		return o, nil
	}
	k := c.remembered(key, w.Pool)
	if k.refused != "" && k.same(w, o.Live) && c.cfg.Clock.Now().Before(k.until) {
		o.Message = k.refused
		return o, nil
	}
	if k.refused == "" && o.Live != nil && k.same(w, o.Live) && (k.behind(o.Live) || identified(o.Live.meta, set, w)) {
		return o, nil
	}
	if w.Object == nil { // unchanged since the last rendering; see render
		if *w = Render(set, []*v1beta2.NodePool{pool}, map[string]Had{w.Pool: w.had})[0]; w.Err != nil {
			return o, w.Err
		}
	}
	exists := o.Live != nil
	uid, message, err := c.uidOf(ctx, set, w, o.Live)
	if err != nil || message != "" {
		o.Message = message
		return o, err
	}
	if uid != "" && (o.Live == nil || o.Live.meta.GetLabels()[LabelYurtAppSet] == "") {
		err = c.takeOver(ctx, w)
	}
	var applied *Live
	if err == nil {
		applied, err = c.apply(ctx, w, uid)
	}
	if err != nil {
		if o.Message = refusal(err, uid != ""); o.Message == "" {
			o.Message = cut(err.Error())
			return o, err
		}
		k = known{hash: w.Hash, refused: o.Message, until: c.cfg.Clock.Now().Add(mendAfter)}
		if o.Live != nil {
			k.uid, k.generation = o.Live.UID, o.Live.Generation
		}
		c.remember(key, w.Pool, k)
		return o, nil
	}
	c.remember(key, w.Pool, known{uid: applied.UID, hash: w.Hash, generation: applied.Generation})
	if o.Live = applied; !exists && uid == "" {
		klog.FromContext(ctx).Info("Made a workload", "yurtAppSet", key, "pool", w.Pool, "name", w.Name)
		c.cfg.Events.Eventf(objects.Regarding(set, kindSet), nil, corev1.EventTypeNormal, "WorkloadCreated", "CreateWorkload",
			"Made %s %s for pool %s", applied.Kind, w.Name, w.Pool)
	}
	return o, nil
}

// same reports whether k is about this Wanted and this workload. An older generation comes from a cache that lags.
func (k *known) same(w *Wanted, l *Live) bool {
	if l == nil {
		return k.hash == w.Hash && k.uid == ""
	}
	return k.hash == w.Hash && k.uid == l.UID && l.Generation <= k.generation
}

// behind reports whether the cache still shows a workload as it was before the last apply.
func (k *known) behind(l *Live) bool {
	return l != nil && k.uid == l.UID && l.Generation < k.generation
}

// identified reports whether a workload has the wanted labels, annotations and owner. A change of these does not raise the
// workload's generation.
func identified(o client.Object, set *v1beta1.YurtAppSet, w *Wanted) bool {
	return objects.Subset(w.Labels, o.GetLabels()) && objects.Subset(w.Annotations, o.GetAnnotations()) &&
		metav1.IsControlledBy(o, set)
}

// uidOf returns the UID of our workload; empty means that none exists. A text that is not empty says what keeps the workload from
// being written: another's workload has its name, or the previous one is still being deleted. If l is nil, uidOf asks the API
// server, because the cache may lag, and never holds workloads of others.
func (c *Controller) uidOf(ctx context.Context, set *v1beta1.YurtAppSet, w *Wanted, l *Live) (types.UID, string, error) {
	if l != nil {
		return l.UID, "", nil
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(w.Object.GroupVersionKind())
	err := c.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(w.Object), there)
	switch {
	case apierrors.IsNotFound(err):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("look for %s %s: %w", w.Kind, w.Name, err)
	case !metav1.IsControlledBy(there, set):
		return "", fmt.Sprintf("a %s %s exists that does not belong to this YurtAppSet: rename or delete it", w.Kind, w.Name), nil
	case there.DeletionTimestamp != nil:
		return "", "the previous workload is still being deleted", nil
	}
	return there.UID, "", nil
}

// apply applies what is wanted to the workload with this UID only. Without a UID it creates the workload, and fails if a
// workload of that name exists by now.
func (c *Controller) apply(ctx context.Context, w *Wanted, uid types.UID) (*Live, error) {
	object := w.Object.DeepCopy()
	options := []client.ApplyOption{client.FieldOwner(FieldOwner)}
	if uid != "" {
		object.SetUID(uid)
		options = append(options, client.ForceOwnership)
	}
	if err := c.cfg.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", w.Kind, w.Name, err)
	}
	typed := workloadOf(w.Kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("read the answer about %s %s: %w", w.Kind, w.Name, err)
	}
	return liveOf(typed), nil
}

// refusal returns what a person must mend; empty means that the error may pass by itself.
func refusal(err error, exists bool) string {
	switch {
	case apierrors.IsInvalid(err) && exists && unchangeable(err):
		return cut("the change is to a field that can't be changed: delete the workload " +
			"(kubectl delete --cascade=orphan keeps its Pods), and it will be made again: " + err.Error())
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "): // as RBAC says it; a policy gives its own reason
		return cut("this namespace is not open to workloads of YurtAppSets: name it in yurtAppSets.namespaces of the chart, or " +
			"bind there the ClusterRole openyurt:coordinator-controller:workloads: " + err.Error())
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return cut(err.Error())
	default:
		return ""
	}
}

// unchangeable reports whether the API server never lets this field change. Only the message's text tells.
func unchangeable(err error) bool {
	return strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "Forbidden: updates to")
}

// removeOthers deletes those of our workloads that are no longer wanted. The Brake of the YurtAppSet holds workloads back whose
// pools exist, and are only no longer selected.
func (c *Controller) removeOthers(
	ctx context.Context, set *v1beta1.YurtAppSet, selected Selection, wanted []Wanted, all map[ref]*Live, w *World,
) error {
	stays := make(map[ref]bool, len(wanted))
	for i := range wanted {
		stays[wanted[i].ref()] = true
	}
	var leaving, doubtful []client.Object
	of := 0
	for _, l := range slices.SortedFunc(maps.Values(all), byName) {
		if !l.Deleting {
			of++
		}
		switch {
		case stays[ref{l.Kind, l.Name}]:
		case l.Deleting:
			w.Leaving = append(w.Leaving, l.Name)
		case selected.Others[l.Pool]:
			doubtful = append(doubtful, l.meta)
		default:
			leaving = append(leaving, l.meta)
		}
	}
	key := client.ObjectKeyFromObject(set)
	free, held := c.brake(key).Let(set, doubtful, of, c.cfg.Clock.Now())
	w.Held = held
	var failed []error
	for _, o := range append(leaving, free...) {
		w.Leaving = append(w.Leaving, o.GetName())
		l := liveOf(o)
		err := c.cfg.Client.Delete(ctx, o, client.Preconditions{UID: &l.UID},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil {
			if !apierrors.IsNotFound(err) {
				failed = append(failed, fmt.Errorf("delete %s %s: %w", l.Kind, l.Name, err))
			}
			continue
		}
		klog.FromContext(ctx).Info("Deleted a workload", "yurtAppSet", key, "pool", l.Pool, "name", l.Name)
		c.cfg.Events.Eventf(objects.Regarding(set, kindSet), nil, corev1.EventTypeNormal, "WorkloadDeleted", "DeleteWorkload",
			"Deleted %s %s: pool %s no longer wants it", l.Kind, l.Name, l.Pool)
	}
	return firstOf(failed)
}

func byName(a, b *Live) int { return strings.Compare(a.Name+a.Kind, b.Name+b.Kind) }

// writeStatus writes the status if it changed, and reports conditions that changed.
func (c *Controller) writeStatus(ctx context.Context, set *v1beta1.YurtAppSet, next v1beta1.YurtAppSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, next) {
		return nil
	}
	before := set.Status.Conditions
	set.Status = next
	if err := c.cfg.Client.Status().Update(ctx, set, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("update status of YurtAppSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	for _, now := range next.Conditions {
		if now.Type == v1beta1.AppSetReady || now.Type == v1beta1.AppSetStalled && now.Reason != ReasonRolloutStopped {
			continue // the others tell
		}
		i := slices.IndexFunc(before, func(b v1beta1.YurtAppSetCondition) bool { return b.Type == now.Type })
		stops := now.Type == v1beta1.AppSetStalled
		waits := now.Reason == ReasonRemovalWaits && (i < 0 || before[i].Reason != now.Reason)
		if !waits && (i >= 0 && before[i].Status == now.Status || i < 0 && now.Status == corev1.ConditionTrue && !stops) {
			continue
		}
		kind := corev1.EventTypeNormal
		if stops || waits || now.Status == corev1.ConditionFalse && now.Type != v1beta1.AppSetAppReady &&
			now.Type != v1beta1.AppSetAppDeleted {
			kind = corev1.EventTypeWarning
		}
		c.cfg.Events.Eventf(objects.Regarding(set, kindSet), nil, kind, string(now.Type), "Judge", "%s is %s: %s %s",
			now.Type, now.Status, now.Reason, now.Message)
	}
	return nil
}
