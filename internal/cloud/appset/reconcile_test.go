package appset

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/cloud/cloudtest"
)

// TestAFailedLookKeepsTheStatus: what could not be read is no state of the workloads. A policy goes by their number.
func TestAFailedLookKeepsTheStatus(t *testing.T) {
	set := deployments("till", nil, "p1")
	set.Namespace, set.UID = "shop", "u"
	set.Status.TotalWorkloads = 7
	builder := fake.NewClientBuilder().WithScheme(cloudtest.Scheme(t)).WithStatusSubresource(&v1beta1.YurtAppSet{}).
		WithObjects(set, nodePool("p1"))
	for _, o := range []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.ControllerRevision{}} {
		builder.WithIndex(o, ownerIndex, controllerOf)
	}
	api := builder.Build()
	failing := interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				return errors.New("the API server is away")
			}
			return c.List(ctx, list, opts...)
		},
	})
	c := New(Config{Client: api, Reader: failing, Events: events.NewFakeRecorder(100), Clock: clock.RealClock{}})
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)}); err == nil {
		t.Error("no error is returned")
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || set.Status.TotalWorkloads != 7 {
		t.Errorf("the status says %d workloads, %v", set.Status.TotalWorkloads, err)
	}
}
