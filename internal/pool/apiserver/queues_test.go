package apiserver

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/apis/core"
)

// large is a ConfigMap of a MiB and some bytes, as storage decodes it.
func large() runtime.Object {
	return &core.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"a": strings.Repeat("x", 1<<20)},
	}
}

// counted returns how often a limit was met, when it is called and since.
func counted(t *testing.T, why limit) func() float64 {
	t.Helper()
	read := func() float64 {
		n, err := testutil.GetCounterMetricValue(limited.WithLabelValues(string(why)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	return func() float64 { return read() - before }
}

func TestSizeOf(t *testing.T) {
	q := newQueues()
	for what, c := range map[string]struct {
		object runtime.Object
		most   int64
	}{
		"a ConfigMap":  {large(), 1<<20 + 100},
		"an empty one": {&core.ConfigMap{}, 100},
		"a Status":     {&metav1.Status{Message: "x"}, 100},
	} {
		if size := q.sizeOf(c.object); size <= 0 || size > c.most || c.most > 1<<20 && size < 1<<20 {
			t.Errorf("%s: %d bytes", what, size)
		}
	}
}

// TestWhatWaitsIsBounded: a caller's watch that is not read ends before stallTimeout when too much waits, and another caller's
// goes on. What waited no longer counts.
func TestWhatWaitsIsBounded(t *testing.T) {
	q := newQueues()
	synctest.Test(t, func(t *testing.T) {
		ended := counted(t, byBytes)
		flooded, calm := watch.NewFake(), watch.NewFake()
		thief := started(flooded, &unstalled{caller: "thief", queues: q})
		other := started(calm, &unstalled{caller: "other", queues: q})
		began, sent := time.Now(), 0
		for ; !flooded.IsStopped() && sent < 100; sent++ {
			flooded.Modify(large())
			synctest.Wait()
		}
		if sent < mostQueued>>20-1 || sent > mostQueued>>20+2 || time.Since(began) > 0 || ended() != 1 {
			t.Errorf("%d MiB wait after %s, %v ended", sent, time.Since(began), ended())
		}
		if _, open := <-thief.ResultChan(); open {
			t.Error("it goes on")
		}
		calm.Modify(large())
		if event, open := <-other.ResultChan(); !open || event.Type != watch.Modified {
			t.Errorf("the other's: %+v, %t", event.Type, open)
		}
		other.Stop()
		synctest.Wait()
		if len(q.of) != 0 || q.bytes != 0 {
			t.Errorf("%d bytes wait, of %v", q.bytes, q.of)
		}
	})
}

// TestManyCallersWait: when too much waits for all, a caller keeps its share, and who has more gets no more.
func TestManyCallersWait(t *testing.T) {
	q := newQueues()
	for _, thief := range []string{"a", "b", "c"} {
		if !q.add(thief, mostQueued) || q.add(thief, 1) {
			t.Errorf("%s has %+v", thief, q.of[thief])
		}
	}
	if !q.add("late", queuedShare) || q.add("late", 1) {
		t.Errorf("who comes late has %+v", q.of["late"])
	}
	q.add("a", -mostQueued)
	if !q.add("late", 1) {
		t.Error("who comes late does not get what another gave back")
	}
}

func TestMostListing(t *testing.T) {
	q, refused := newQueues(), counted(t, byLists)
	for range mostListing {
		if err := q.list("thief"); err != nil {
			t.Fatal(err)
		}
	}
	err := q.list("thief")
	seconds, says := apierrors.SuggestsClientDelay(err)
	if !apierrors.IsTooManyRequests(err) || !says || seconds != 1 || refused() != 1 {
		t.Errorf("one more: %v, after %d s", err, seconds)
	}
	if err := q.list("other"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	q.listed("thief")
	if err := q.list("thief"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
