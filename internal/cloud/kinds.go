package cloud

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/nodepool"
)

// Our own kinds.
var (
	kindNodePool        = v1beta2.GroupVersion.WithKind("NodePool")
	kindYurtAppSet      = v1beta1.GroupVersion.WithKind("YurtAppSet")
	kindYurtCoordinator = v1alpha1.GroupVersion.WithKind("YurtCoordinator")
)

// addOwnKinds registers the controllers of our own kinds, to begin when their CRDs are there.
func addOwnKinds(mgr manager.Manager, c Config) error {
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	begin := func(wanted bool, name string, add func(manager.Manager) error, kinds ...schema.GroupVersionKind) error {
		if !wanted {
			return nil
		}
		return mgr.Add(&whenServed{
			name: name, kinds: kinds, discovery: served, clock: clock.RealClock{}, add: func() error { return add(mgr) },
		})
	}
	events := mgr.GetEventRecorder(Name)
	pools := nodepool.New(nodepool.Config{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events})
	apps := appset.New(appset.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{},
	})
	coordinators := coordinator.New(coordinator.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: clock.RealClock{},
		Image: c.Coordinator.Image, Version: c.Coordinator.Version, Lives: c.Coordinator.Lives,
		PullPolicy: corev1.PullPolicy(c.Coordinator.PullPolicy), PullSecrets: c.Coordinator.PullSecrets,
	})
	return errors.Join(
		begin(c.NodePools, "nodepool", pools.AddTo, kindNodePool),
		begin(c.AppSets, "yurtappset", apps.AddTo, kindNodePool, kindYurtAppSet),
		begin(c.Coordinators, "yurtcoordinator", coordinators.AddTo, kindNodePool, kindYurtAppSet, kindYurtCoordinator))
}
