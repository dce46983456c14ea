package heartbeat

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// cloudLease is a node's Lease in the cloud as a leader knows it. The zero cloudLease means that the cloud has none.
type cloudLease struct {
	*coordinationv1.Lease
	// before says that the leader read the Lease before it saw the renewal. A PUT with the Lease's resourceVersion then fails if
	// anybody has written the Lease since the leader read it.
	before bool
	// latest is the latest renewTime that the leader has seen in the cloud's Lease. Somebody may have set the renewTime back
	// since.
	latest time.Time
}

// forward returns the Lease to PUT into the cloud for a renewal of the coordinator's copy, or the reason why nothing is to be
// written. The PUT creates the Lease if the cloud has none.
//
// In an existing Lease, forward sets the renewTime and the holder, adds the mark and removes edge.AnnotationRelayedBy. A policy
// of the cloud refuses further changes, and any holder but the node. The leader saw the renewal happen, so the renewal counts
// even if its stamp is not later than the cloud's. The node's clock may have been set back, or somebody may have written a stamp
// from years ahead. In that case forward writes the cloud's stamp plus 1 µs, because kube-controller-manager counts a renewal
// only if the stamp advances.
func forward(copied *coordinationv1.Lease, cloud cloudLease) (*coordinationv1.Lease, reason) {
	var lease *coordinationv1.Lease
	switch {
	case cloud.Lease == nil:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: copied.Namespace, Name: copied.Name}}
		lease.OwnerReferences = copied.DeepCopy().OwnerReferences
		copied.Spec.DeepCopyInto(&lease.Spec)
	case cloud.DeletionTimestamp != nil:
		return nil, reasonUnmarked
	case reported(copied, cloud):
		return nil, reasonReported
	default:
		lease = cloud.DeepCopy()
		lease.ManagedFields = nil // sent back, they would be set; left out, the server keeps them
		lease.Spec.HolderIdentity = copied.DeepCopy().Spec.HolderIdentity
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: advance(renewTime(copied), cloud.latest)}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	delete(lease.Annotations, edge.AnnotationRelayedBy) // the node itself wrote it, over a line that no longer serves
	return lease, ""
}

// reported reports whether the cloud already has this renewal, or a later one from the node itself. A later stamp in the cloud is
// a later renewal only if the node wrote it after the copy. If the node wrote it before the copy, the node's clock was set back
// after that write. The copy's AnnotationCloudLease has the revision of the cloud's Lease that the node knew when it wrote the
// copy. If that is still the Lease's revision, the cloud's stamp is from before the copy.
func reported(copied *coordinationv1.Lease, cloud cloudLease) bool {
	stamp, there := renewTime(copied), renewTime(cloud.Lease)
	if stamp.Equal(there) {
		return !there.Before(cloud.latest)
	}
	marked := cloud.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn &&
		cloud.Annotations[edge.AnnotationRelayedBy] == "" // else the node wrote it
	_, known, _ := strings.Cut(copied.Annotations[AnnotationCloudLease], "/")
	return there.After(stamp) && !marked && !cloud.before && known != cloud.ResourceVersion
}

// advance returns the stamp, or the cloud's plus 1 µs if the stamp is not later.
func advance(stamp, there time.Time) time.Time {
	if stamp.After(there) {
		return stamp
	}
	return there.Add(time.Microsecond)
}
