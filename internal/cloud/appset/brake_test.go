package appset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
)

// braked is a Brake before objects that are removed once it lets them go.
type braked struct {
	Brake
	t    *testing.T
	set  *v1beta1.YurtAppSet
	now  time.Time
	live map[int]client.Object
	held Held
}

func newBraked(t *testing.T, n int) *braked {
	b := &braked{
		Brake: Brake{What: "workloads"}, t: t, live: make(map[int]client.Object),
		now: time.Date(2126, 11, 29, 10, 0, 0, 0, time.UTC),
		set: &v1beta1.YurtAppSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till"}},
	}
	b.make(0, n)
	return b
}

func (b *braked) make(from, to int) {
	for i := from; i < to; i++ {
		b.live[i] = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i, b.now))}}
	}
}

// leave says that the first n leave, and expects that so many are removed, and that the others are held.
func (b *braked) leave(after time.Duration, n, want int) {
	b.t.Helper()
	b.now = b.now.Add(after)
	var leaving []client.Object
	for i := range n {
		if o := b.live[i]; o != nil {
			leaving = append(leaving, o)
		}
	}
	free, held := b.Let(b.set, leaving, len(b.live), b.now)
	for _, o := range free {
		for i := range b.live {
			if b.live[i] == o {
				delete(b.live, i)
			}
		}
	}
	if b.held = held; len(free) != want || len(held.Objects) != len(leaving)-want {
		b.t.Errorf("%v: %d of %d go, and %d are held (%s); want %d",
			b.now, len(free), len(leaving), len(held.Objects), held.Message, want)
	}
	if len(held.Objects) > 0 && (held.Again <= 0 || held.Again > doubtFor) {
		b.t.Errorf("%v: it is looked at again after %v", b.now, held.Again)
	}
}

func TestFewGoAtOnce(t *testing.T) {
	for _, c := range []struct{ of, leave, go_ int }{
		{1, 1, 1}, {3, 1, 1}, {2, 2, 0}, {3, 2, 0}, {19, 2, 0}, {20, 2, 2}, {30, 4, 0}, {1000, 100, 100}, {1000, 101, 0},
	} {
		newBraked(t, c.of).leave(0, c.leave, c.go_)
	}
}

func TestManyWaitAndThenGoLittleByLittle(t *testing.T) {
	b := newBraked(t, 30)
	b.leave(0, 25, 0)
	if want := "25 of 30 workloads are no longer asked for. That may be a mistake, so they stay until 2126-11-29T10:10:00Z, " +
		"and then go at most 3 a minute. To remove them now: kubectl annotate yurtappset till -n shop --overwrite " +
		"apps.openyurt.io/confirm-removal=25"; b.held.Message != want {
		t.Error(b.held.Message)
	}
	b.leave(9*time.Minute, 25, 0)
	if b.held.Again != time.Minute {
		t.Error(b.held.Again)
	}
	b.leave(time.Minute, 25, 3)
	b.leave(10*time.Second, 25, 0)
	if b.held.Again != 50*time.Second {
		t.Error(b.held.Again)
	}
	b.leave(50*time.Second, 25, 3)
	for range 6 {
		b.leave(time.Minute, 25, 3)
	}
	b.leave(time.Minute, 25, 1)
	if len(b.live) != 5 || len(b.held.Objects) != 0 || b.held.Message != "" {
		t.Errorf("%d are left, %+v", len(b.live), b.held)
	}
}

// TestAMistakeThatIsCorrected, and another one soon after: that one waits for as long.
func TestAMistakeThatIsCorrected(t *testing.T) {
	b := newBraked(t, 5)
	b.leave(0, 5, 0)
	b.leave(9*time.Minute, 0, 0)
	b.leave(time.Minute, 5, 0)
	b.leave(9*time.Minute, 5, 0)
	b.leave(time.Minute, 5, 1)
	b.leave(time.Second, 0, 0) // the rest stays, and one is made again
	b.make(0, 5)
	b.leave(time.Minute, 5, 0)
}

// TestAMistakePoolByPool passes only once in ten minutes.
func TestAMistakePoolByPool(t *testing.T) {
	b := newBraked(t, 5)
	b.leave(0, 1, 1)
	b.leave(time.Second, 2, 0)
	b.leave(time.Second, 3, 0)
	b.leave(time.Minute, 0, 0)
	b.leave(time.Minute, 1, 0)
	b.leave(time.Minute, 2, 0) // the first has gone
	if want := 10*time.Minute - (3*time.Minute + 2*time.Second); b.held.Again != want {
		t.Error(b.held.Again)
	}
	b.leave(b.held.Again, 2, 1)

	b = newBraked(t, 1000)
	for i := range 100 {
		b.leave(200*time.Millisecond, i+1, 1)
	}
	b.leave(200*time.Millisecond, 150, 0)
	b.leave(doubtFor, 150, 50)
}

func TestWhatIsConfirmedGoesAtOnce(t *testing.T) {
	b := newBraked(t, 7)
	b.set.Annotations = map[string]string{AnnotationConfirmRemoval: "5"}
	b.set.Spec.Rollout = &v1beta1.Rollout{Paused: true}
	b.leave(0, 7, 0)
	b.set.Annotations[AnnotationConfirmRemoval] = "7"
	b.leave(time.Second, 7, 7)
}

func TestPausedRemovals(t *testing.T) {
	b := newBraked(t, 8)
	b.set.Spec.Rollout = &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromString("50%")), Paused: true}
	b.leave(0, 8, 0)
	b.leave(time.Hour, 8, 0)
	const want = "so they stay while spec.rollout.paused of YurtAppSet shop/till is true. To"
	if !strings.Contains(b.held.Message, want) {
		t.Error(b.held.Message)
	}
	b.set.Spec.Rollout.Paused = false
	b.leave(time.Second, 8, 4)
	b.set.Spec.Rollout.Paused = true
	b.leave(time.Hour, 8, 0)
	b.set.Spec.Rollout.Paused = false
	b.Brake = Brake{What: "workloads"} // a restart
	b.leave(0, 8, 0)
	b.leave(10*time.Minute, 8, 2)
}

// TestARemovalThatFails is tried again, and is no further one.
func TestARemovalThatFails(t *testing.T) {
	b := newBraked(t, 20)
	o := b.live[0]
	b.leave(0, 2, 2)
	b.live[0] = o // it is still there
	b.leave(time.Second, 1, 1)
	b.live[0] = o
	b.leave(time.Second, 4, 1)
}
