package edge

import (
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReportLease(t *testing.T) {
	for slot, want := range map[Slot]string{0: "yurt-coordinator-p1", 1: "yurt-coordinator--1-p1", 2: "yurt-coordinator--2-p1"} {
		name := PoolName("p1").ReportLease(slot)
		if pool, of := ReportOf(name); name != want || pool != "p1" || of != slot {
			t.Errorf("%s is that of slot %d of pool %s", name, of, pool)
		}
	}
	for _, name := range []string{"p1", "yurt-coordinator", "yurt-coordinator-", "yurt-coordinator--1-"} {
		if pool, _ := ReportOf(name); pool != "" {
			t.Errorf("%s is a report of pool %s", name, pool)
		}
	}
}

func TestReports(t *testing.T) {
	report := func(slot Slot, leader, reached, says string, at time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: PoolName("p1").ReportLease(slot), Annotations: map[string]string{
				AnnotationReachedNodes: reached, AnnotationKubelet: "n2=" + says, AnnotationPoolResources: "services=" + says,
			}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &leader, RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0).Add(at)},
			},
		}
	}
	home, standby := report(0, "n1", "n1,n2", "none", time.Minute), report(2, "n3", "n3,n2", "pinned", 2*time.Minute)
	all := ReportsOf([]*coordinationv1.Lease{standby, home})
	if got := all.Leaders(); !slices.Equal(got, []SlotLeader{{0, "n1"}, {2, "n3"}}) {
		t.Errorf("%v lead", got)
	}
	if got := all.Reached(); !slices.Equal(got, []NodeName{"n1", "n2", "n3"}) {
		t.Errorf("%v are reached", got)
	}
	if got := all.Fillings(); !maps.Equal(got, map[string]Filling{"services": FillingNone}) {
		t.Errorf("it has %v", got)
	}
	if got := all.Kubelets(); !maps.Equal(got, map[NodeName]KubeletWay{"n2": KubeletPinned}) {
		t.Errorf("kubelets are known by %v", got) // the lower slot's leader says what nobody can read
	}
	home.Annotations[AnnotationKubelet] = "n2=signed"
	if got := all.Kubelets(); !maps.Equal(got, map[NodeName]KubeletWay{"n2": KubeletSigned}) {
		t.Errorf("kubelets are known by %v", got)
	}
	if all.Versions() != nil || all.Traffic() != nil || ReportsOf(nil).Reached() != nil || ReportsOf(nil).Fillings() != nil {
		t.Error("something is said that nobody says")
	}
	for name, tt := range map[string]struct {
		first, second *coordinationv1.Lease
		want          []SlotLeader
	}{
		"who led a standby leads at home": {
			report(1, "n1", "", "", 0), report(0, "n1", "", "", time.Second), []SlotLeader{{0, "n1"}},
		},
		"home has died": {report(0, "n1", "", "", 0), report(1, "n1", "", "", time.Second), []SlotLeader{{1, "n1"}}},
		"nobody says when": {
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "yurt-coordinator-p1"}},
			report(1, "", "", "", time.Second), []SlotLeader{{1, ""}},
		},
	} {
		if got := ReportsOf([]*coordinationv1.Lease{tt.first, tt.second}).Leaders(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v lead, want %v", name, got, tt.want)
		}
	}
}
