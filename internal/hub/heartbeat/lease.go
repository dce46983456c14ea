package heartbeat

import (
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
)

// AnnotationCloudLease on the coordinator's copy identifies the cloud's Lease, as "uid/resourceVersion". A hub that restarts
// while cut off reads this identity from the copy. The annotation never reaches the cloud or kubelet.
const AnnotationCloudLease = "openyurt.io/cloud-lease"

// unmarked returns a copy of a Lease without any mark of ours.
func unmarked(lease *coordinationv1.Lease) *coordinationv1.Lease {
	clean := lease.DeepCopy()
	clean.Annotations = without(clean.Annotations, edge.DelegateHeartbeat, edge.AnnotationCoordinatorHost,
		AnnotationCloudLease, edge.AnnotationTraffic, edge.AnnotationKubelet, edge.AnnotationLine, edge.AnnotationPutBack,
		edge.AnnotationRelayedBy, edge.AnnotationRelaysAt, edge.AnnotationHubVersion, edge.AnnotationHub)
	clean.Labels = without(clean.Labels, edge.DelegateHeartbeat)
	return clean
}

// without returns m without some keys. It returns nil if no key is left.
func without(m map[string]string, keys ...string) map[string]string {
	rest := maps.Clone(m)
	for _, key := range keys {
		delete(rest, key)
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// forCloud returns kubelet's Lease in the form for the cloud: without marks, and with the identity of the cloud's own Lease. If
// the cloud's Lease is not known, the identity stays as kubelet sent it, because kubelet had it from the cloud. forCloud also
// drops the managed fields, which are half of a Lease's size.
func forCloud(sent, known *coordinationv1.Lease) *coordinationv1.Lease {
	lease := unmarked(sent)
	lease.ManagedFields = nil
	if known != nil {
		lease.UID, lease.ResourceVersion, lease.ManagedFields = known.UID, known.ResourceVersion, lead.Unmanaged(known)
	}
	return lease
}

// forKubelet returns the answer to kubelet: the cloud's Lease with kubelet's own spec, without marks.
func forKubelet(known, sent *coordinationv1.Lease) *coordinationv1.Lease {
	lease := unmarked(known)
	sent.Spec.DeepCopyInto(&lease.Spec)
	return lease
}

// copyOf returns the coordinator's copy of kubelet's Lease, with AnnotationCloudLease. The copy keeps the owner reference,
// because a leader that creates the Lease in the cloud needs it. The parameter known is the cloud's Lease; nil means that the
// cloud gave none.
func copyOf(sent, known *coordinationv1.Lease, marked bool) *coordinationv1.Lease {
	clean := unmarked(sent)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: clean.Namespace, Name: clean.Name, Labels: clean.Labels, Annotations: clean.Annotations,
			OwnerReferences: clean.OwnerReferences,
		},
		Spec: clean.Spec,
	}
	if known == nil {
		known = sent
	}
	if known.UID != "" && known.ResourceVersion != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationCloudLease,
			string(known.UID)+"/"+known.ResourceVersion)
	}
	if marked {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
		metav1.SetMetaDataLabel(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	}
	return lease
}

// fromCopy returns the cloud's Lease from its copy; provisional if the copy has no cloud identity.
func fromCopy(copied *coordinationv1.Lease) *coordinationv1.Lease {
	uid, revision, _ := strings.Cut(copied.Annotations[AnnotationCloudLease], "/")
	if uid == "" || revision == "" {
		uid, revision = "", ""
	}
	lease := unmarked(copied)
	lease.UID, lease.ResourceVersion = types.UID(uid), revision
	lease.ManagedFields, lease.CreationTimestamp, lease.Generation = nil, metav1.Time{}, 0
	return lease
}

// provisional reports whether a Lease lacks the cloud's uid or resourceVersion. kubelet made such a Lease while cut off, and the
// cloud may not have it. A nil Lease counts as provisional.
func provisional(lease *coordinationv1.Lease) bool {
	return lease == nil || lease.UID == "" || lease.ResourceVersion == ""
}

// duration is the Lease's own duration; 0 if it names none.
func duration(lease *coordinationv1.Lease) time.Duration {
	return time.Duration(max(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0), 0)) * time.Second
}

// renewTime is kubelet's stamp of its heartbeat; the zero time if there is none.
func renewTime(lease *coordinationv1.Lease) time.Time {
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}
