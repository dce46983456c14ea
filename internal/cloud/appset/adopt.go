package appset

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
)

// hadBy returns, by pool, what a rendering keeps of the pool's existing workload. If a pool has several workloads, hadBy takes
// the oldest that is not being deleted. The others are not wanted, and are removed.
//
// If somebody has removed a workload's labels, the cache lacks the workload. hadBy then takes its name from the status.
func hadBy(set *v1beta1.YurtAppSet, live map[ref]*Live) map[string]Had {
	all := make(map[string]Had)
	for _, row := range set.Status.Workloads {
		all[row.Pool] = Had{Name: row.Name}
	}
	first := make(map[string]*Live)
	for _, l := range live {
		if l.Kind != kindOf(&set.Spec) || l.Pool == "" {
			continue
		}
		if other := first[l.Pool]; other == nil || precedes(l, other) {
			first[l.Pool], all[l.Pool] = l, l.had
		}
	}
	return all
}

func precedes(a, b *Live) bool {
	if a.Deleting != b.Deleting {
		return b.Deleting
	}
	x, y := a.meta.GetCreationTimestamp(), b.meta.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// takeOver makes FieldOwner the owner of the fields that OpenYurt's controller has written in a workload. Otherwise those fields
// would stay when the template no longer has them.
func (c *Controller) takeOver(ctx context.Context, w *Wanted) error {
	there := workloadOf(w.Kind)
	if err := c.cfg.Reader.Get(ctx, client.ObjectKeyFromObject(w.Object), there); err != nil {
		return fmt.Errorf("read %s %s: %w", w.Kind, w.Name, err)
	}
	theirs := openYurts(there.GetManagedFields())
	if len(theirs) == 0 {
		return nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(there, sets.New(theirs...), FieldOwner)
	if err != nil || patch == nil {
		return err
	}
	if err := c.cfg.Client.Patch(ctx, there, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("take over %s %s: %w", w.Kind, w.Name, err)
	}
	klog.FromContext(ctx).Info("Took over a workload of OpenYurt's controller", "pool", w.Pool, "name", w.Name)
	return nil
}

// openYurts returns the field managers that OpenYurt's controller has written with: those that own its label.
func openYurts(managed []metav1.ManagedFieldsEntry) []string {
	var names []string
	for _, m := range managed {
		if m.Operation == metav1.ManagedFieldsOperationUpdate && m.Subresource == "" && m.FieldsV1 != nil &&
			bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:`+LabelOpenYurt+`"`)) && !slices.Contains(names, m.Manager) {
			names = append(names, m.Manager)
		}
	}
	return names
}

func workloadOf(kind string) client.Object {
	if kind == "StatefulSet" {
		return &appsv1.StatefulSet{}
	}
	return &appsv1.Deployment{}
}
