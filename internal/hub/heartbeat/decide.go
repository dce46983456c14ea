package heartbeat

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// forward decides what a renewal of the coordinator's copy does to the node's Lease in the cloud. It returns the Lease
// to PUT, or why there is none to PUT. A nil cloud means that the cloud has no such Lease; the PUT then creates it.
//
// kubelet's stamp goes to the cloud unchanged. kube-controller-manager counts a renewal only when the stamp advances,
// so forward drops a stamp that is no later than the cloud's: the node itself or another leader has reported meanwhile.
// A node that stamps years ahead stops only its own heartbeat: it may write no other node's copy.
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
		lease.ManagedFields = nil // sent back, they would be set; left out, the server keeps them
	}
	if len(copied.OwnerReferences) > 0 {
		lease.OwnerReferences = copied.DeepCopy().OwnerReferences
	}
	copied.Spec.DeepCopyInto(&lease.Spec)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	return lease, ""
}
