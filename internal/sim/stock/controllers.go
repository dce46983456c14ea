package stock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
)

// Judgement is what kube-controller-manager's flags say about nodes.
type Judgement struct {
	MonitorPeriod, StartupGrace, Grace time.Duration
	// EvictionRate and SecondaryEvictionRate are in nodes per second and zone.
	EvictionRate, SecondaryEvictionRate float32
	// LargeZone is up to how many nodes a zone stops evicting, instead of slowing it down, once UnhealthyZone of it is not Ready.
	LargeZone     int32
	UnhealthyZone float32
}

// DefaultJudgement returns the defaults of Kubernetes 1.36, from pkg/controller/nodelifecycle/config/v1alpha1/defaults.go (graces),
// cmd/kube-controller-manager/app/options/nodelifecyclecontroller.go (rates and zones), and
// k8s.io/cloud-provider/config/v1alpha1/defaults.go (the period). Before 1.32, Grace was 40 s.
func DefaultJudgement() Judgement {
	return Judgement{
		MonitorPeriod: 5 * time.Second, StartupGrace: time.Minute, Grace: 50 * time.Second,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeZone: 50, UnhealthyZone: 0.55,
	}
}

// RunControllers runs what kube-controller-manager has for nodes that are silent, until ctx ends: its node lifecycle controller,
// which judges and taints, and its taint eviction controller. It returns when all that it started has ended, which takes up to ten
// seconds if events could not be written. A restart is another call.
//
// Kubernetes' queue of nodes to taint holds a mutex during requests. In a bubble, time stands while somebody waits for a mutex. So
// the transport must not let a GET or a PATCH of a Node wait for a time: it answers at once, or fails at once. (A kube-controller-manager
// whose API server hangs exits after ten seconds: that is a restart.)
func RunControllers(ctx context.Context, cfg *rest.Config, j Judgement) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	defer cancel()

	clients, err := kubernetes.NewForConfig(client(cfg))
	if err != nil {
		return fmt.Errorf("make kube-controller-manager's client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(clients, 0)
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	lifecycle, err := nodelifecycle.NewNodeLifecycleController(ctx, factory.Coordination().V1().Leases(), pods, nodes,
		factory.Apps().V1().DaemonSets(), clients, j.MonitorPeriod, j.StartupGrace, j.Grace,
		j.EvictionRate, j.SecondaryEvictionRate, j.LargeZone, j.UnhealthyZone)
	if err != nil {
		return fmt.Errorf("make the node lifecycle controller: %w", err)
	}
	eviction, err := tainteviction.New(ctx, clients, pods, nodes, "taint-eviction-controller")
	if err != nil {
		return fmt.Errorf("make the taint eviction controller: %w", err)
	}
	factory.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { lifecycle.Run(ctx) })
	running.Go(func() { eviction.Run(ctx) })
	running.Wait()
	factory.Shutdown()
	return nil
}
