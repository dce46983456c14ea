package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

func TestFilled(t *testing.T) {
	const none, complete, current = edge.FillingNone, edge.FillingComplete, edge.FillingCurrent
	for name, tt := range map[string]struct {
		are               fillings
		complete, current string // reasons
		says, not         string // of both messages
	}{
		"no report":              {nil, ReasonNoReport, ReasonNoReport, "Nobody reports", ""},
		"a report of nothing":    {fillings{}, ReasonNoReport, ReasonNoReport, "Nobody reports", ""},
		"all is current":         {fillings{"a": current, "b": current}, ReasonComplete, ReasonCurrent, "a, b", ""},
		"one falls behind":       {fillings{"a": current, "b": complete}, ReasonComplete, ReasonNotCurrent, "b", ""},
		"one has not come":       {fillings{"a": current, "b": none}, ReasonNotComplete, ReasonNotCurrent, "b", "a, b"},
		"a state of another age": {fillings{"a": "half"}, ReasonNotComplete, ReasonNotCurrent, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			complete, current := tt.are.filled()
			for f, reason := range map[*finding]string{&complete: tt.complete, &current: tt.current} {
				fine := reason == ReasonComplete || reason == ReasonCurrent
				if f.Reason != reason || f.OK != fine || f.Unknown != (reason == ReasonNoReport) ||
					!strings.Contains(f.Message, tt.says) || tt.not != "" && strings.Contains(f.Message, tt.not) {
					t.Errorf("%+v, want %s", *f, reason)
				}
			}
		})
	}
}

// The conditions follow the leader's report, and say that nobody knows once it is old.
func TestFilledIsReported(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: corev1.NamespaceNodeLease, Name: edge.PoolName("p1").ReportLease(0),
		Annotations: map[string]string{edge.AnnotationReachedNodes: "p1-n1,p1-n2,p1-n3"},
	}}
	w.create(lease)
	w.turns(2)
	if got := w.status("c1"); strings.Contains(got, "PoolResources") {
		t.Errorf("a leader that says nothing of them has said %s", got)
	}
	for text, want := range map[string]string{
		"endpoints=current,services=none":     " PoolResourcesComplete=False/NotComplete PoolResourcesCurrent=False/NotCurrent",
		"endpoints=complete,services=current": " PoolResourcesComplete=True/Complete PoolResourcesCurrent=False/NotCurrent",
		"endpoints=current,services=current":  " PoolResourcesComplete=True/Complete PoolResourcesCurrent=True/Current",
	} {
		w.get(corev1.NamespaceNodeLease, lease.Name, lease)
		lease.Annotations[edge.AnnotationPoolResources] = text
		w.update(lease)
		w.turns(2)
		if got := w.status("c1"); !strings.Contains(got, want) {
			t.Errorf("%s: it says %s", text, got)
		}
		incomplete, stale := "", ""
		if strings.Contains(text, "none") {
			incomplete = `{pool="p1"} 1`
		}
		if strings.Contains(want, ReasonNotCurrent) {
			stale = `{pool="p1"} 1`
		}
		w.measure("pool_resources_not_complete", incomplete)
		w.measure("pool_resources_not_current", stale)
	}
	w.clock.SetTime(w.clock.Now().Add(edge.ReportLasts(nil)))
	w.turns(2)
	const unknown = " PoolResourcesComplete=Unknown/NoReport PoolResourcesCurrent=Unknown/NoReport"
	if got := w.status("c1"); !strings.Contains(got, unknown) {
		t.Errorf("without a leader it says %s", got)
	}
	if m := w.message("c1", v1alpha1.YurtCoordinatorResourcesComplete); !strings.Contains(m, "Nobody reports") {
		t.Errorf("it says %s", m)
	}
}

// TestReportsOfAllSlots: a node is outside the pool if no leader hears it, at whichever coordinator. Of what the pool shares, and
// of who leads, the lowest slot's leader speaks.
func TestReportsOfAllSlots(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 4)
	w.coordinator("c1", "p1")
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	report := func(name, leader, reached, shares string, after time.Duration) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: name, Annotations: map[string]string{
				edge.AnnotationReachedNodes: reached, edge.AnnotationPoolResources: shares,
				edge.AnnotationKubelet: strings.ReplaceAll(reached, ",", "=pinned,") + "=pinned",
			},
		}}
		lease.Spec.HolderIdentity = &leader
		lease.Spec.RenewTime = &metav1.MicroTime{Time: w.clock.Now().Add(after)}
		var there coordinationv1.Lease
		if w.get(lease.Namespace, name, &there) {
			lease.ResourceVersion = there.ResourceVersion
			w.update(lease)
		} else {
			w.create(lease)
		}
		w.turns(2)
	}
	is := func(what string, outside ...string) {
		t.Helper()
		var c v1alpha1.YurtCoordinator
		w.get("", "c1", &c)
		if got := c.Status.OutsidePoolNodes; !slices.Equal(got, outside) {
			t.Errorf("%s: %v are outside, want %v", what, got, outside)
		}
	}
	const home, standby = "yurt-coordinator-p1", "yurt-coordinator--1-p1"
	report(standby, "p1-n2", "p1-n2,p1-n3", "services=none", 0)
	is("a standby is led, home is not", "p1-n1", "p1-n4")
	report(home, "p1-n1", "p1-n1,p1-n2", "services=current", 0)
	is("each hears two", "p1-n4")
	if got := w.status("c1"); !strings.Contains(got, "PoolResourcesCurrent=True") || !strings.Contains(got, "KubeletsKnown") {
		t.Errorf("both speak, and the status says %s", got)
	}
	report(home, "p1-n2", "p1-n1,p1-n2", "services=current", time.Second)
	is("who led the standby leads at home, too, and says all there", "p1-n3", "p1-n4")
	report(standby, "p1-n1", "p1-n3", "services=none", time.Second)
	is("another leads the standby", "p1-n4")
	w.clock.SetTime(w.clock.Now().Add(edge.ReportLasts(nil)))
	w.turns(2)
	is("both are old")
}
