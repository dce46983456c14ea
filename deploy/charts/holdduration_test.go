package charts

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/poolcut"
	"yurtcoordinator/internal/edge"
)

// TestHoldDuration: what the policy accepts, the controller can read.
func TestHoldDuration(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "held"}}
	create(t, c, pool)
	set := func(value string) error {
		changed := pool.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, edge.AnnotationHoldEvictions, value)
		return c.Patch(t.Context(), changed, client.MergeFrom(pool))
	}
	for _, good := range []string{"90s", "2h", "1h30m", "0.5h", "168h", "1ms"} {
		mustAccept(t, good, set(good))
		terms := poolcut.TermsOf(map[string]string{edge.AnnotationHoldEvictions: good}, 0)
		if terms.Problem != "" || terms.For <= 0 {
			t.Errorf("the controller takes %q for %+v", good, terms)
		}
	}
	for _, out := range []string{"0s", "0h", "0.0m"} {
		mustAccept(t, out, set(out))
		terms := poolcut.TermsOf(map[string]string{edge.AnnotationHoldEvictions: out}, time.Hour)
		if terms != (poolcut.Terms{}) {
			t.Errorf("the controller takes %q for %+v", out, terms)
		}
	}
	for _, bad := range []string{"", "2", "two hours", "-2h", "168h1s", "9999999999h", "999999999h", "1d", "2h ", "true"} {
		err := set(bad)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "hold-evictions of NodePool held must be a duration") {
			t.Errorf("%q: %v, want it refused as invalid", bad, err)
		}
		terms := poolcut.TermsOf(map[string]string{edge.AnnotationHoldEvictions: bad}, 0)
		if terms.Problem == "" || terms.For != 0 {
			t.Errorf("the controller takes %q for %+v", bad, terms)
		}
	}
	made := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{
		Name: "held-2", Annotations: map[string]string{edge.AnnotationHoldEvictions: "never"},
	}}
	if err := c.Create(t.Context(), made); !apierrors.IsInvalid(err) {
		t.Errorf("a NodePool made with a wrong one: %v, want it refused as invalid", err)
	}
}

// TestWrongHoldDurationFromBefore: it does not keep others from writing the NodePool.
func TestWrongHoldDurationFromBefore(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	pool := &v1beta2.NodePool{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: unreadablePool}, pool); err != nil {
		t.Fatal(err)
	}
	base := client.MergeFrom(pool.DeepCopy())
	metav1.SetMetaDataLabel(&pool.ObjectMeta, "example.org/other", "x")
	mustAccept(t, "another change", c.Patch(t.Context(), pool, base))
	base = client.MergeFrom(pool.DeepCopy())
	pool.Annotations[edge.AnnotationHoldEvictions] = "still not"
	if err := c.Patch(t.Context(), pool, base); !apierrors.IsInvalid(err) {
		t.Errorf("another wrong one: %v, want it refused as invalid", err)
	}
	delete(pool.Annotations, edge.AnnotationHoldEvictions)
	mustAccept(t, "taking it away", c.Patch(t.Context(), pool, base))
}
