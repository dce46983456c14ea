package heartbeat

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// forward decides what becomes of a node's Lease in the cloud, given a renewal of the coordinator's copy of it. It
// returns the Lease to PUT, or why not. A nil cloud means that there is none; the PUT then creates it.
//
// kubelet's stamp goes to the cloud as it is. kube-controller-manager counts a renewal only when the stamp advances, so
// one that does not advance beyond the cloud's is not written: the node has reported itself meanwhile, or another
// leader did it. A node that stamps years ahead stops its own heartbeat with that, and nobody else's: it may write no
// other node's copy.
func forward(copied, cloud *coordinationv1.Lease) (*coordinationv1.Lease, reason) {
	var lease *coordinationv1.Lease
	switch {
	case cloud == nil:
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: copied.Namespace, Name: copied.Name}}
	case cloud.DeletionTimestamp != nil:
		return nil, reasonUnmarked
	case !renewTime(copied).After(renewTime(cloud)):
		return nil, reasonReported
	default:
		lease = unmarked(cloud)
		lease.ManagedFields = nil // the server keeps them; sending them back is for those who mean to change them
	}
	if len(copied.OwnerReferences) > 0 {
		lease.OwnerReferences = copied.DeepCopy().OwnerReferences
	}
	copied.Spec.DeepCopyInto(&lease.Spec)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	return lease, ""
}
