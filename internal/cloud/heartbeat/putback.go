package heartbeat

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// aheadMost is how far ahead of our clock the stamp of a silent node may be: twice what nodes' clocks may be off.
const aheadMost = 10 * time.Minute

// putBackTo returns the renewTime to write into a Lease whose own is more than aheadMost in the future; false means that the
// Lease may keep its own. Only the Lease of a silent node is changed. On a living node, whose hub advances the renewTime, a
// change would hide the next heartbeats from kube-controller-manager.
func putBackTo(f Finding, stamp, now time.Time) (time.Time, bool) {
	return now.Truncate(time.Microsecond), f.Verdict == Silent && !f.Gone && stamp.Sub(now) > aheadMost
}

// putBack sets the renewTime of a silent node's Lease to now if it is from the future. Otherwise a node that comes back without
// a hub would count as dead until its clock has passed that time. An annotation says that the write is no heartbeat.
func (p *Policy) putBack(ctx context.Context, node *corev1.Node, f Finding) error {
	stamp, revision, found := p.sightings.stamp(edge.NodeName(node.Name))
	to, needed := putBackTo(f, stamp, p.ends.Wall())
	if !found || !needed {
		return nil
	}
	content, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": revision.String(), "annotations": map[string]string{edge.AnnotationPutBack: stampText(to)},
		},
		"spec": map[string]any{"renewTime": stampText(to)},
	})
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}
	patch := client.RawPatch(types.MergePatchType, content)
	if err := p.client.Patch(ctx, lease, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("put back the renewTime of Lease %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Put back a renewTime from the future", "node", klog.KRef("", node.Name), "from", stamp, "to", to)
	p.metrics.putBack.WithLabelValues(string(poolOf(node))).Inc()
	p.tell(node, Event{corev1.EventTypeWarning, EventRenewTimePutBack, fmt.Sprintf(
		"The node is silent, and its Lease says that it was renewed at %s: by a clock that was ahead, or by a node of its pool "+
			"that forwards what it should not. The time was put back", stamp.UTC().Format(time.RFC3339))})
	return nil
}

// isPutBack reports whether a Lease's renewTime is what we put it back to.
func isPutBack(lease *coordinationv1.Lease) bool {
	to, ok := lease.Annotations[edge.AnnotationPutBack]
	return ok && lease.Spec.RenewTime != nil && to == stampText(lease.Spec.RenewTime.Time)
}

func stampText(t time.Time) string { return t.UTC().Format(metav1.RFC3339Micro) }
