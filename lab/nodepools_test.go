package lab

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

func TestPoolStatuses(t *testing.T) {
	node := func(name, pool string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if pool != "" {
			n.Labels = map[string]string{edge.LabelNodePool: pool}
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	all := (Config{Pools: 2, Nodes: 2}).places()
	for _, tt := range []struct {
		what  string
		nodes []*corev1.Node
		want  map[edge.PoolName]poolStatus
	}{
		{"no objects yet, or no kubelets", nil, map[edge.PoolName]poolStatus{
			"p1": {[]string{"p1-n1", "p1-n2"}, 0, 2}, "p2": {[]string{"p2-n1", "p2-n2"}, 0, 2},
		}},
		{"some are ready", []*corev1.Node{node("p1-n2", "p1", yes), node("p2-n1", "p2", no), node("p2-n2", "p2", unknown)},
			map[edge.PoolName]poolStatus{
				"p1": {[]string{"p1-n1", "p1-n2"}, 1, 1}, "p2": {[]string{"p2-n1", "p2-n2"}, 0, 2},
			}},
		{"some have moved", []*corev1.Node{
			node("p1-n1", "p2", yes), node("p1-n2", "", yes), node("p2-n1", "p3", yes), node("p2-n2", "p2", yes),
		}, map[edge.PoolName]poolStatus{
			"p1": {}, "p2": {[]string{"p1-n1", "p2-n2"}, 2, 0}, "p3": {[]string{"p2-n1"}, 1, 0},
		}},
	} {
		if got := poolStatuses(all, tt.nodes); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.what, got, tt.want)
		}
	}
}

func TestNodePoolDefinition(t *testing.T) {
	objects, err := decodeAll(nodePoolDefinition)
	if err != nil || len(objects) != 1 || objects[0].GetName() != NodePools.GroupResource().String() {
		t.Errorf("%v, %v: want the definition of %s alone", objects, err, NodePools.GroupResource())
	}
}
