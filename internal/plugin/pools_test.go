package plugin

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func aNode(name, pool string, ready corev1.ConditionStatus, more ...corev1.NodeCondition) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if pool != "" {
		n.Labels = map[string]string{edge.LabelNodePool: pool}
	}
	n.Status.Conditions = append(n.Status.Conditions, more...)
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: ready, Reason: "KubeletReady", LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
	})
	return n
}

// aLease was renewed this long ago; mark says that it is delegated.
func aLease(holder string, ago time.Duration, mark bool) coordinationv1.Lease {
	l := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(noon.Add(-ago))), LeaseDurationSeconds: ptr.To[int32](40),
	}}
	if mark {
		l.Annotations = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	}
	return l
}

func lasting(seconds int32, l coordinationv1.Lease) coordinationv1.Lease {
	l.Spec.LeaseDurationSeconds = &seconds
	return l
}

func ofSlot(slot edge.Slot, l coordinationv1.Lease) coordinationv1.Lease {
	l.Name = edge.PoolName("a").ReportLease(slot)
	return l
}

func aCoordinator(pool, node string, conditions ...v1alpha1.YurtCoordinatorCondition) v1alpha1.YurtCoordinator {
	return v1alpha1.YurtCoordinator{
		Spec:   v1alpha1.YurtCoordinatorSpec{NodePool: pool},
		Status: v1alpha1.YurtCoordinatorStatus{NodeName: node, Conditions: conditions},
	}
}

var isReady = v1alpha1.YurtCoordinatorCondition{Type: v1alpha1.YurtCoordinatorReady, Status: v1alpha1.ConditionTrue}

func TestPoolsOf(t *testing.T) {
	said := func(ago time.Duration) *time.Time { return ptr.To(noon.Add(-ago)) }
	none := []string{}
	tooFew := v1alpha1.YurtCoordinatorCondition{
		Type: v1alpha1.YurtCoordinatorPending, Status: v1alpha1.ConditionTrue, Reason: "TooFewNodes",
	}
	notReady := v1alpha1.YurtCoordinatorCondition{
		Type: v1alpha1.YurtCoordinatorReady, Status: v1alpha1.ConditionFalse, Reason: "PodNotReady",
	}
	outside := aCoordinator("a", "a1", isReady)
	outside.Status.OutsidePoolNodes = []string{"a3"}
	poolA := v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	counted := func(name string, ready, unready int32, nodes ...string) v1beta2.NodePool {
		return v1beta2.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v1beta2.NodePoolStatus{ReadyNodeNum: ready, UnreadyNodeNum: unready, Nodes: nodes},
		}
	}
	seeing := func(reached string, l coordinationv1.Lease) coordinationv1.Lease {
		l.Annotations = map[string]string{edge.AnnotationReachedNodes: reached}
		return l
	}
	cutOff := outside
	cutOff.Status.DelegatedNodes = []string{"a2", "a3"}
	for name, c := range map[string]struct {
		o    Objects
		want []Pool
	}{
		"nothing": {Objects{}, []Pool{}},
		"a pool without nodes": {
			Objects{Pools: []v1beta2.NodePool{poolA}},
			[]Pool{{Name: "a", Coordinator: CoordinatorNone, Delegated: none, Outside: none}},
		},
		"all of it, in order": {
			Objects{
				Pools:        []v1beta2.NodePool{counted("b", 0, 1), counted("a", 2, 1)},
				Coordinators: []v1alpha1.YurtCoordinator{cutOff, aCoordinator("b", "", tooFew)},
				Leases: map[string]coordinationv1.Lease{
					"yurt-coordinator-a": aLease("a1", time.Minute, false),
				},
			},
			[]Pool{
				{
					Name: "a", Nodes: 3, Ready: 2, Coordinator: CoordinatorReady, CoordinatorNode: "a1", Leader: "a1",
					LeaderSaid: said(time.Minute), Delegated: []string{"a2", "a3"}, Outside: []string{"a3"},
				},
				{Name: "b", Nodes: 1, Coordinator: "TooFewNodes", Delegated: none, Outside: none},
			},
		},
		"a coordinator that somebody else runs: Leases and the leader's report tell": {
			Objects{
				Pools: []v1beta2.NodePool{counted("a", 3, 0, "a1", "a2", "a3")},
				Leases: map[string]coordinationv1.Lease{
					"a1": aLease("a1", 0, false), "a2": aLease("a2", 0, true), "a3": aLease("a3", 0, false),
					"yurt-coordinator-a": seeing("a1,a2", aLease("a1", time.Minute, false)),
				},
			},
			[]Pool{{
				Name: "a", Nodes: 3, Ready: 3, Coordinator: CoordinatorReady, Leader: "a1", LeaderSaid: said(time.Minute),
				Delegated: []string{"a2"}, Outside: []string{"a3"},
			}},
		},
		"two leaders, each at another coordinator, and one that led a third": {
			Objects{
				Pools: []v1beta2.NodePool{counted("a", 4, 0, "a1", "a2", "a3", "a4")},
				Leases: map[string]coordinationv1.Lease{
					"yurt-coordinator-a":    ofSlot(0, seeing("a1", aLease("a1", time.Minute, false))),
					"yurt-coordinator--1-a": ofSlot(1, seeing("a2", aLease("a2", 0, false))),
					"yurt-coordinator--2-a": ofSlot(2, seeing("a3", aLease("a3", time.Hour, false))),
				},
			},
			[]Pool{{
				Name: "a", Nodes: 4, Ready: 4, Coordinator: CoordinatorReady, Leader: "a1", LeaderSaid: said(time.Minute),
				OtherLeaders: []edge.SlotLeader{{Slot: 1, Leader: "a2"}}, Delegated: none, Outside: []string{"a3", "a4"},
			}},
		},
		"one whose leader has not reported for long, and one that has": {
			Objects{
				Pools: []v1beta2.NodePool{counted("a", 1, 0, "a1"), counted("b", 1, 0, "b1")},
				Leases: map[string]coordinationv1.Lease{
					"a1": aLease("a1", 0, true), "yurt-coordinator-a": seeing("", aLease("a1", time.Hour, false)),
					"b1": aLease("b1", 0, false), "yurt-coordinator-b": aLease("b1", 0, false),
				},
			},
			[]Pool{
				{
					Name: "a", Nodes: 1, Ready: 1, Coordinator: CoordinatorNone, LeaderSaid: said(time.Hour),
					Delegated: []string{"a1"}, Outside: none,
				},
				{
					Name: "b", Nodes: 1, Ready: 1, Coordinator: CoordinatorReady, Leader: "b1", LeaderSaid: said(0),
					Delegated: none, Outside: none,
				},
			},
		},
		"a leader that has not reported for long, a coordinator that was and is not": {
			Objects{
				Coordinators: []v1alpha1.YurtCoordinator{aCoordinator("a", "a1", notReady)},
				Leases:       map[string]coordinationv1.Lease{"yurt-coordinator-a": aLease("a1", 3*time.Minute, false)},
			},
			[]Pool{{
				Name: "a", Coordinator: "PodNotReady", CoordinatorNode: "a1", LeaderSaid: said(3 * time.Minute),
				Delegated: none, Outside: none,
			}},
		},
		"a leader on a metered link, which reports more seldom, and says so": {
			Objects{
				Coordinators: []v1alpha1.YurtCoordinator{aCoordinator("a", "a1", isReady)},
				Leases: map[string]coordinationv1.Lease{
					"yurt-coordinator-a": lasting(600, aLease("a1", 9*time.Minute, false)),
				},
			},
			[]Pool{{
				Name: "a", Coordinator: CoordinatorReady, CoordinatorNode: "a1", Leader: "a1", LeaderSaid: said(9 * time.Minute),
				Delegated: none, Outside: none,
			}},
		},
		"two coordinators, of which one is refused; one that nobody has looked at": {
			Objects{Coordinators: []v1alpha1.YurtCoordinator{
				aCoordinator("a", "a1", isReady), aCoordinator("a", "", tooFew), aCoordinator("b", ""),
			}},
			[]Pool{
				{Name: "a", Coordinator: CoordinatorReady, CoordinatorNode: "a1", Delegated: none, Outside: none},
				{Name: "b", Coordinator: CoordinatorNew, Delegated: none, Outside: none},
			},
		},
		"a coordinator that has no Nodes": {
			Objects{
				Within: "a", Election: ptr.To(aLease("a2", 50*time.Second, false)),
				Leases: map[string]coordinationv1.Lease{"a1": aLease("a1", 0, true), "a2": aLease("a2", time.Minute, false)},
			},
			[]Pool{{
				Name: "a", Nodes: 2, Ready: 1, Coordinator: CoordinatorReady, Leader: "a2", LeaderSaid: said(50 * time.Second),
				Delegated: []string{"a1"}, Outside: none,
			}},
		},
		"a coordinator that has them; its last leader is gone": {
			Objects{
				Within: "a", Election: ptr.To(aLease("a2", 80*time.Second, false)),
				Nodes:  []corev1.Node{aNode("a1", "a", corev1.ConditionTrue), aNode("a2", "", corev1.ConditionTrue)},
				Leases: map[string]coordinationv1.Lease{"a1": aLease("a1", 0, true)},
			},
			[]Pool{{
				Name: "a", Nodes: 2, Ready: 2, Coordinator: CoordinatorReady, LeaderSaid: said(80 * time.Second),
				Delegated: []string{"a1"}, Outside: none,
			}},
		},
	} {
		got := PoolsOf(c.o, noon)
		for i := range got {
			got[i].Problems = nil // TestProblems is about them
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// TestVersionsOfPools: hubs are known by the pool's report, or by their own words at a coordinator; coordinators by their images.
func TestVersionsOfPools(t *testing.T) {
	accepted, refused := aCoordinator("a", "a1", isReady), aCoordinator("a", "")
	accepted.Status.Coordinators = []v1alpha1.CoordinatorInSlot{
		{Slot: 0, Version: "v0.2.0-k1.36.3"}, {Slot: 1}, {Slot: 2, Version: "v0.3.0-k1.36.3"},
	}
	report, own, none := aLease("a1", time.Minute, false), aLease("a1", 0, false), aLease("a2", 0, false)
	report.Annotations = map[string]string{edge.AnnotationHubVersion: "v0.2.0=a1;a2,newest=a3"}
	own.Annotations = map[string]string{edge.AnnotationHubVersion: "v0.2.0"}
	none.Annotations = map[string]string{edge.AnnotationHubVersion: "newest"}
	for name, test := range map[string]struct {
		o            Objects
		hubs         map[edge.NodeName]string
		coordinators []string
	}{
		"the cloud": {Objects{
			Coordinators: []v1alpha1.YurtCoordinator{accepted, refused},
			Leases:       map[string]coordinationv1.Lease{"yurt-coordinator-a": report},
		}, map[edge.NodeName]string{"a1": "v0.2.0", "a2": "v0.2.0"}, []string{"v0.2.0-k1.36.3", "v0.3.0-k1.36.3"}},
		"a coordinator": {Objects{
			Within: "a", Leases: map[string]coordinationv1.Lease{"a1": own, "a2": none},
		}, map[edge.NodeName]string{"a1": "v0.2.0"}, nil},
	} {
		got := PoolsOf(test.o, noon)
		if len(got) != 1 || !maps.Equal(got[0].HubVersions, test.hubs) ||
			!slices.Equal(got[0].CoordinatorVersions, test.coordinators) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
