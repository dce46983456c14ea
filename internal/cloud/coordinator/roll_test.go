package coordinator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/roll"
)

func TestWhoIsOnTheRoll(t *testing.T) {
	now := metav1.Now()
	for _, deleted := range []*metav1.Time{nil, &now} { // its pool has one until it is gone
		c := &v1alpha1.YurtCoordinator{
			ObjectMeta: metav1.ObjectMeta{Name: "c1", DeletionTimestamp: deleted},
			Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: "p1"},
		}
		if e, on := poolsRoll().Of(c); !on || e != (roll.Entry{Key: "p1", Value: "c1"}) {
			t.Errorf("%v, %t", e, on)
		}
	}
}
