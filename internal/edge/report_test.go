package edge

import (
	"maps"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReportOf: what a leader of v0.1.0 leaves in a report of another's is not taken for its word.
func TestReportOf(t *testing.T) {
	report := func(by, holder string, term int32) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				AnnotationReachedNodes: "n1,n2", AnnotationTraffic: "t", AnnotationHubVersion: "v0.2.0=n1",
				AnnotationPoolResources: "services=current",
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &term},
		}
		if by != "" {
			l.Annotations[AnnotationReportBy] = by
		}
		return l
	}
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		all   bool
	}{
		"by whom it says":             {report("n1/7", "n1", 7), true},
		"by one that does not say":    {report("", "n1", 7), true},
		"another has written since":   {report("n1/7", "n2", 8), false},
		"the same, in another term":   {report("n1/7", "n1", 8), false},
		"a value that nobody writes":  {report("n1", "n1", 7), false},
		"nobody, and he does not say": {&coordinationv1.Lease{}, true},
	} {
		before := maps.Clone(test.lease.Annotations)
		said := ReportOf(test.lease)
		if all := maps.Equal(said, before); all != test.all {
			t.Errorf("%s: %v", name, said)
		}
		if !test.all && !maps.Equal(said, map[string]string{AnnotationReachedNodes: "n1,n2", AnnotationTraffic: "t"}) {
			t.Errorf("%s: %v", name, said)
		}
		if !maps.Equal(test.lease.Annotations, before) {
			t.Errorf("%s: the Lease itself has changed", name)
		}
	}
	lease := report("", "n3", 12)
	if by := ReportBy(lease); by != "n3/12" {
		t.Errorf("by %s", by)
	}
	if by := ReportBy(&coordinationv1.Lease{}); by != "/0" {
		t.Errorf("by nobody: %s", by)
	}
}
