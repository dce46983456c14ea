package member

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// TestWithLines: it is the turn of nobody who can't ask the cloud.
func TestWithLines(t *testing.T) {
	now := time.Unix(1e9, 0)
	lease := func(name string, ago time.Duration, relayedBy string) coordinationv1.Lease {
		l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		l.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-ago)}
		if relayedBy != "" {
			l.Annotations = map[string]string{edge.AnnotationRelayedBy: relayedBy}
		}
		return l
	}
	never := lease("never", 0, "")
	never.Spec.RenewTime = nil
	got := withLines([]coordinationv1.Lease{
		lease("leader", 0, ""), lease("n1", 0, ""), lease("n2", time.Minute, ""), lease("dead", time.Hour, ""),
		lease("relayed", 0, "n2"), never, lease("n3", 4*time.Minute, ""),
	}, "leader", "n1")
	if want := []edge.NodeName{"n2", "n3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := withLines(nil); len(got) != 0 {
		t.Errorf("%v of no Leases", got)
	}
}
