package settings

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yurtcoordinator/apis"
	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
)

// TestStatusesRest until a pool is told or can't be, and then are looked at again.
func TestStatusesRest(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, apis.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := saying("s", 0, 0, "a")
	var refuses error
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.PoolSettings{}).
		WithIndex(&corev1.Node{}, control.IndexPool, control.PoolOf).
		WithObjects(&s, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}).
		WithInterceptorFuncs(interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch,
			o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if refuses != nil {
				return refuses
			}
			return c.Apply(ctx, o, opts...)
		}}).Build()
	c := New(Config{
		Client: api, Reader: api, Events: events.NewFakeRecorder(100), Clock: clocktesting.NewFakePassiveClock(day),
	})
	status := func(when, reason string) {
		t.Helper()
		result, err := c.reconcileStatus(t.Context(), control.Request("s"))
		if err != nil || !result.IsZero() {
			t.Errorf("%s: %v, looked at again after %v", when, err, result.RequeueAfter)
		}
		is := &v1alpha1.PoolSettings{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(&s), is); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.PoolSettingsReady)
		if reason == "" && ready != nil || reason != "" && (ready == nil || ready.Reason != reason) {
			t.Errorf("%s: %+v, want %s", when, ready, reason)
		}
	}
	pool := func(when string) {
		t.Helper()
		if _, err := c.reconcilePool(t.Context(), control.Request("p")); !errors.Is(err, refuses) {
			t.Fatalf("%s: %v", when, err)
		}
		select {
		case <-c.told:
		default:
			t.Errorf("%s: no status is looked at", when)
		}
	}
	status("at a start", "")
	refuses = errors.New("a policy says no")
	pool("it can't be told")
	status("it can't be told", ReasonNotTold)
	refuses = nil
	pool("it is told")
	status("it is told", ReasonTold)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(&s), &s); err != nil {
		t.Fatal(err)
	}
	s.Generation = 2
	s.Spec.Hub.CacheAgents = []string{"b"}
	if err := api.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	status("it is changed", ReasonTelling)
	pool("it is changed")
	status("it is told again", ReasonTold)
}
