package autonomy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
)

func TestWhoIsOnTheRoll(t *testing.T) {
	for what, tt := range map[string]struct {
		pool        string
		annotations map[string]string
		want        bool
	}{
		"an ordinary node":          {"p1", nil, false},
		"one that is off":           {"p1", map[string]string{edge.AnnotationAutonomy: "false"}, false},
		"an autonomous one":         {"p1", map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn}, true},
		"one for a while":           {"p1", map[string]string{edge.AnnotationAutonomyDuration: "2h"}, true},
		"one for nobody knows when": {"p1", map[string]string{edge.AnnotationAutonomyDuration: "soon"}, true},
		"one of no pool":            {"", map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn}, false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "n1", Labels: map[string]string{edge.LabelNodePool: tt.pool}, Annotations: tt.annotations,
		}}
		if e, on := autonomousRoll().Of(n); on != tt.want || on && e != (roll.Entry{Key: tt.pool, Value: "n1"}) {
			t.Errorf("%s: %v, %t", what, e, on)
		}
	}
}
