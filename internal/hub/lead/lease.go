package lead

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// LeaseRevision returns a Lease's resourceVersion as a number, which orders the writes of one server. It returns 0 for a missing
// resourceVersion, or for one that is not a number.
func LeaseRevision(lease *coordinationv1.Lease) uint64 {
	revision, _ := edge.ParseRevision(lease.ResourceVersion)
	return uint64(revision)
}

// Unmanaged returns the managedFields for an update of a Lease: one empty entry if the known Lease has any, otherwise nil. The
// entry makes the API server drop the managedFields, and record none until somebody applies the object. Without the entry the API
// server keeps them, and sends them with each answer.
func Unmanaged(known *coordinationv1.Lease) []metav1.ManagedFieldsEntry {
	if len(known.ManagedFields) == 0 {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{}}
}
