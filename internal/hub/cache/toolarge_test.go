package cache

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/store"
)

// TestWhatIsTooLargeIsSaid: each selection is counted, and Events about the Node say which, at most one a minute.
func TestWhatIsTooLargeIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		told := NewTooLarge("n1", registry, ends.Ends{})
		cloud := fake.NewClientset()
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- told.Run(ctx, cloud.CoreV1()) }()
		what := store.Collection{Client: "system:serviceaccount:kube-system:cilium", Resource: schema.GroupVersionResource{
			Version: "v1", Resource: "nodes",
		}}
		posted := func() (all []*corev1.Event) {
			synctest.Wait()
			for _, a := range cloud.Actions() {
				all = append(all, a.(clienttesting.CreateAction).GetObject().(*corev1.Event))
			}
			return all
		}
		told.Tell(what, 9<<20)
		if n := len(posted()); n != 1 {
			t.Fatalf("%d Events at once, want 1", n)
		}
		for range 19 {
			told.Tell(what, 9<<20)
		}
		time.Sleep(eventEvery / 2)
		if n := len(posted()); n != 1 {
			t.Fatalf("%d Events within half a minute, want 1", n)
		}
		time.Sleep(20 * eventEvery)
		all := posted()
		if want := 1 + cap(told.events); len(all) != want {
			t.Errorf("%d Events in the end, want %d", len(all), want)
		}
		e := all[0]
		if e.InvolvedObject.Kind != "Node" || e.InvolvedObject.UID != "n1" || e.Reason != reasonTooLarge ||
			!strings.Contains(e.Message, "9 MiB") || !strings.Contains(e.Message, what.String()) {
			t.Errorf("%+v", e)
		}
		if got := testutil.ToFloat64(told.count.WithLabelValues("nodes")); got != 20 {
			t.Errorf("%v are counted, want 20", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
