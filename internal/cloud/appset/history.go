package appset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
)

const (
	// limitDefault is how many old revisions are kept if the API server has set no default.
	limitDefault = 10

	// revisionHash is how many digits of a hash are in the name of a revision.
	revisionHash = 16
)

// content returns what a revision stores: the template, as docs/yurtappsets.md reads it.
func content(set *v1beta1.YurtAppSet) ([]byte, error) {
	type m = map[string]any
	encoded, err := json.Marshal(set.Spec.Workload.WorkloadTemplate)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m{"spec": m{"workload": m{"workloadTemplate": json.RawMessage(encoded)}}})
}

// revisionName returns the name of a revision. The name contains a hash of the content and of the YurtAppSet's UID, because
// revisions of a deleted YurtAppSet with the same name may still exist.
func revisionName(set *v1beta1.YurtAppSet, content []byte) string {
	return fit(set.Name, nameMax) + "-" + digest(append([]byte(set.UID), content...), revisionHash)
}

// HistoryPlan is what to do to the history.
type HistoryPlan struct {
	// Current is the revision that has the content; nil means that it must be made.
	Current *appsv1.ControllerRevision
	// Number is the number that the current revision must have.
	Number int64
	// Prune are the oldest revisions beyond the limit.
	Prune []*appsv1.ControllerRevision
}

// PlanHistory is pure. limit is how many old revisions, those other than the current one, are kept.
func PlanHistory(revisions []*appsv1.ControllerRevision, content []byte, limit int32) HistoryPlan {
	sorted := slices.Clone(revisions)
	slices.SortFunc(sorted, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	p := HistoryPlan{Number: 1}
	var old []*appsv1.ControllerRevision
	for _, r := range sorted {
		p.Number = max(p.Number, r.Revision+1)
		if p.Current == nil && string(r.Data.Raw) == string(content) {
			p.Current = r
		} else {
			old = append(old, r)
		}
	}
	if p.Current != nil && p.Current == sorted[len(sorted)-1] {
		p.Number = p.Current.Revision // it is already the newest
	}
	if surplus := len(old) - int(limit); surplus > 0 {
		p.Prune = old[:surplus]
	}
	return p
}

// record updates the history, and returns the current revision's name.
func (c *Controller) record(ctx context.Context, set *v1beta1.YurtAppSet) (name string, err error) {
	data, err := content(set)
	if err != nil {
		return "", err
	}
	found := &appsv1.ControllerRevisionList{}
	if err := c.cfg.Client.List(ctx, found, client.InNamespace(set.Namespace),
		client.MatchingLabels{LabelYurtAppSet: labelValue(set.Name)}); err != nil {
		return "", fmt.Errorf("list the revisions of YurtAppSet %s: %w", set.Name, err)
	}
	var owned []*appsv1.ControllerRevision
	for i := range found.Items {
		if metav1.IsControlledBy(&found.Items[i], set) {
			owned = append(owned, &found.Items[i])
		}
	}
	plan := PlanHistory(owned, data, ptr.Deref(set.Spec.RevisionHistoryLimit, limitDefault))
	if plan.Current == nil {
		name, err = c.makeRevision(ctx, set, data, plan.Number)
	} else {
		name, err = plan.Current.Name, c.renumber(ctx, plan.Current, plan.Number)
	}
	if err != nil {
		return name, err
	}
	for _, r := range plan.Prune {
		if err := c.cfg.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); err != nil && !apierrors.IsNotFound(err) {
			return name, fmt.Errorf("delete the old revision %s: %w", r.Name, err)
		}
	}
	return name, nil
}

func (c *Controller) renumber(ctx context.Context, r *appsv1.ControllerRevision, number int64) error {
	if r.Revision == number {
		return nil
	}
	base := r.DeepCopy()
	r.Revision = number
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := c.cfg.Client.Patch(ctx, r, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("number the revision %s: %w", r.Name, err)
	}
	return nil
}

// makeRevision creates a revision. If the name is taken, it is by the same revision, not yet in the cache.
func (c *Controller) makeRevision(ctx context.Context, set *v1beta1.YurtAppSet, data []byte, number int64) (string, error) {
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: revisionName(set, data),
			Labels: map[string]string{LabelYurtAppSet: labelValue(set.Name), LabelOpenYurt: labelValue(set.Name)},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("YurtAppSet")),
			},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	}
	err := c.cfg.Client.Create(ctx, r, client.FieldOwner(FieldOwner))
	if err == nil {
		return r.Name, nil
	}
	there := &appsv1.ControllerRevision{}
	if apierrors.IsAlreadyExists(err) && c.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(r), there) == nil &&
		metav1.IsControlledBy(there, set) && string(there.Data.Raw) == string(data) {
		return r.Name, nil
	}
	return "", fmt.Errorf("make the revision %s: %w", r.Name, err)
}
