package pool

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestAWatchNeverEndsWithA500 begins a watch at each revision of a storm of changes, most of which etcd has forgotten. Each
// either goes on or ends with 410, after which a client lists again: also the one whose first change is the oldest that etcd
// has, of an object whose state before is forgotten.
func TestAWatchNeverEndsWithA500(t *testing.T) {
	t.Parallel()
	const history = 50
	c := start(t, func(config *Config) { config.historyRevisions = history })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first := changeMany(t, c, 5*history)
	leases := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	last, err := leases.Get(ctx, "n2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	end, err := strconv.Atoi(last.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	found := map[int32]int{}
	for revision := first; revision < end; revision++ {
		found[firstOf(ctx, t, leases, revision)]++
	}
	t.Logf("watches from %d to %d: %v", first, end, found)
	if found[http.StatusOK] == 0 || found[http.StatusGone] == 0 || len(found) != 2 {
		t.Errorf("watches ended with %v, want some with 410, the others not", found)
	}
}

// firstOf is the code with which a watch at a revision ends, or 200 if it brings a change.
func firstOf(ctx context.Context, t *testing.T, leases coordinationclient.LeaseInterface, revision int) int32 {
	t.Helper()
	w, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.Itoa(revision)})
	if apierrors.IsResourceExpired(err) {
		return http.StatusGone
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event, open := <-w.ResultChan()
	status, failed := event.Object.(*metav1.Status)
	switch {
	case failed:
		t.Logf("at %d: %s", revision, status.Message)
		return status.Code
	case open && event.Type == watch.Modified:
		return http.StatusOK
	default:
		t.Errorf("at %d: got %+v", revision, event)
		return 0
	}
}
