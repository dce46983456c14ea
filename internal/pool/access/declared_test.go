package access

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/apis/coordination"
	testingclock "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

func TestDeclared(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := testingclock.NewFakePassiveClock(began)
	d := newDeclared(ends.Clock{OfDay: c.Now, Ran: c.Now})
	services := schema.GroupResource{Resource: "services"}
	slices := schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	declare := func(holder, applied string, seconds int32) {
		d.admitted(&coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{edge.AnnotationAppliedRevisions: applied}},
			Spec:       coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
		})
	}
	is := func(r schema.GroupResource, now bool, last time.Time) {
		t.Helper()
		if got, at := d.Current(r); got != now || !at.Equal(last) {
			t.Errorf("after %s, %s: %t, last %s; want %t, %s", c.Since(began), r, got, at, now, last)
		}
	}
	is(services, false, time.Time{})
	declare("n1", `{"services":"5","endpointslices.discovery.k8s.io":"7"}`, 10)
	is(services, true, began)
	is(slices, true, began)
	c.SetTime(began.Add(9 * time.Second))
	declare("n1", `{"services":"5"}`, 10) // the other fell behind
	is(services, true, c.Now())
	is(slices, false, began)
	c.SetTime(began.Add(19 * time.Second)) // and then nobody renews
	is(services, false, began.Add(9*time.Second))
	declare("n2", `{"services":"5"}`, 10)
	is(services, true, c.Now())
	for name, nothing := range map[string]func(){
		"nobody holds it": func() { declare("", `{"services":"5"}`, 10) },
		"not JSON":        func() { declare("n2", `services`, 10) },
		"not an object":   func() { declare("n2", `["services"]`, 10) },
		"no annotation":   func() { d.admitted(&coordination.Lease{}) },
		"no duration":     func() { declare("n2", `{"services":"5"}`, 0) },
	} {
		declare("n2", `{"services":"5"}`, 10)
		nothing()
		if now, _ := d.Current(services); now {
			t.Errorf("%s: declared", name)
		}
	}
	declare("n2", `{"services":"5"}`, 1<<30)
	c.SetTime(c.Now().Add(maxDeclaredFor))
	if now, _ := d.Current(services); now {
		t.Error("a declaration counts for years")
	}
	for i := range 10 * maxDeclared {
		declare("liar", fmt.Sprintf(`{"r%d":"1"}`, i), 10)
	}
	if len(d.last) != maxDeclared {
		t.Errorf("%d resources are remembered of a leader that names others without end", len(d.last))
	}
}
