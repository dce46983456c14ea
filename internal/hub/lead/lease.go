package lead

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// LeaseRevision returns a Lease's resourceVersion as a number. It orders the writes of one server. A missing resourceVersion,
// or one that is not a number, gives 0.
func LeaseRevision(lease *coordinationv1.Lease) uint64 {
	revision, _ := edge.ParseRevision(lease.ResourceVersion)
	return uint64(revision)
}

// Unmanaged returns the managedFields for an update of a Lease. If the API server keeps any for it, this is one empty entry,
// otherwise nil. The empty entry makes the API server drop them, and record none until somebody applies the object. Without the
// entry the API server keeps those that it has, and sends them with each answer.
func Unmanaged(known *coordinationv1.Lease) []metav1.ManagedFieldsEntry {
	if len(known.ManagedFields) == 0 {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{}}
}
