package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/cloud/poolcut"
	"yurtcoordinator/internal/cloud/settings"
	"yurtcoordinator/internal/cloud/upgrades"
)

// Our own kinds.
var (
	kindNodePool        = v1beta2.GroupVersion.WithKind("NodePool")
	kindYurtAppSet      = v1beta1.GroupVersion.WithKind("YurtAppSet")
	kindYurtCoordinator = v1alpha1.GroupVersion.WithKind("YurtCoordinator")
	kindPoolSettings    = v1alpha1.GroupVersion.WithKind("PoolSettings")
)

// addOwnKinds registers the controllers of our own kinds, to begin when their CRDs exist, and returns their metrics.
func addOwnKinds(
	mgr manager.Manager, c Config, base v1alpha1.CoordinatorSettings, heartbeats *heartbeat.Policy, cuts *poolcut.Controller,
) ([]prometheus.Collector, error) {
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	if err := control.IndexNodes(mgr); err != nil {
		return nil, err
	}
	waiting := newWaiting()
	begin := func(wanted bool, name string, add func(manager.Manager) error, kinds ...schema.GroupVersionKind) error {
		if !wanted {
			return nil
		}
		return mgr.Add(&whenServed{
			name: name, kinds: kinds, discovery: served, add: func() error { return add(mgr) },
			waiting: waiting,
		})
	}
	events := mgr.GetEventRecorder(Name)
	pools := nodepool.New(nodepool.Config{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events})
	apps := appset.New(appset.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: unsimulated,
	})
	coordinators := coordinator.New(coordinator.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: unsimulated,
		Program: c.Coordinator.Program, KubeletAuthority: kubeletAuthority(mgr.GetConfig()),
		ConstrainedImpersonation: c.ConstrainedImpersonation, Settings: base, PoolSettings: c.PoolSettings,
	})
	hubs := settings.New(settings.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: unsimulated,
		Coordinators: c.Coordinators, Base: base,
	})
	programs := upgrades.New(upgrades.Config{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events, Clock: unsimulated,
		Program: c.Hub,
	})
	err = errors.Join(
		begin(c.Coordinators && c.Heartbeats, "heartbeat", heartbeats.FollowCoordinators, kindYurtCoordinator), // for its show.go
		// It runs whichever controller implements NodePools.
		begin(c.PoolCuts, "poolcut", cuts.AddTo, when(c.HoldEvictions > 0, kindYurtCoordinator, kindNodePool)...),
		begin(c.NodePools, "nodepool", pools.AddTo, kindNodePool),
		begin(c.AppSets, "yurtappset", apps.AddTo, kindNodePool, kindYurtAppSet),
		begin(c.Coordinators, "yurtcoordinator", coordinators.AddTo, when(c.PoolSettings, kindPoolSettings,
			kindNodePool, kindYurtAppSet, kindYurtCoordinator)...),
		begin(c.PoolSettings, "poolsettings", hubs.AddTo, when(c.Coordinators, kindYurtCoordinator,
			kindNodePool, kindPoolSettings)...),
		begin(c.PoolSettings, "hubupgrades", programs.AddTo, kindNodePool, kindPoolSettings))
	own := []prometheus.Collector{pools.Metrics(), coordinators.Metrics(), hubs.Metrics(), waiting}
	return slices.Concat(own, apps.Metrics(), programs.Metrics()), err
}

// when adds a kind to others if a controller needs it.
func when(needed bool, kind schema.GroupVersionKind, others ...schema.GroupVersionKind) []schema.GroupVersionKind {
	if needed {
		return append(others, kind)
	}
	return others
}

// coordinatorSettings reads what holds for coordinators where no PoolSettings says something else: JSON, strictly.
func coordinatorSettings(text string) (s v1alpha1.CoordinatorSettings, err error) {
	if text == "" {
		return s, nil
	}
	strict := json.NewDecoder(strings.NewReader(text))
	strict.DisallowUnknownFields()
	if err = strict.Decode(&s); err == nil {
		if _, more := strict.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one object")
		}
	}
	if err == nil {
		err = coordinator.CheckSettings(s)
	}
	if err != nil {
		return s, fmt.Errorf("--coordinator-settings: %w", err)
	}
	return s, nil
}

// kubeletAuthority returns a function that reads the authority by which coordinators verify kubelets. It is the authority that
// signs for the API server. A nil function means that this authority is not known, so coordinators verify kubelets only by the
// certificates that hubs report.
func kubeletAuthority(connection *rest.Config) func() ([]byte, error) {
	if len(connection.CAData) == 0 && connection.CAFile == "" {
		return nil
	}
	return func() ([]byte, error) {
		bundle := connection.CAData
		if len(bundle) == 0 && connection.CAFile != "" {
			var err error
			if bundle, err = os.ReadFile(connection.CAFile); err != nil {
				return nil, err
			}
		}
		if len(certs.Certificates(bundle)) == 0 {
			return nil, errors.New("what verifies the API server has no certificate, so nothing can verify kubelets: " +
				"correct the kubeconfig's certificate-authority")
		}
		return bundle, nil
	}
}
