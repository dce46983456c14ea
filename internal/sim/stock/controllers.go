package stock

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/tainteviction"

	"yurtcoordinator/internal/sim/model"
)

// Judgement has the settings of kube-controller-manager's flags for its judgement of nodes.
type Judgement struct {
	MonitorPeriod, StartupGrace, Grace time.Duration
	// EvictionRate and SecondaryEvictionRate are in nodes per second and zone.
	EvictionRate, SecondaryEvictionRate float32
	// LargeZone is the number of nodes up to which a zone is small. Evictions change if some of a zone's nodes are Ready, and at
	// least three, and at least the share UnhealthyZone of all, are not. A small zone then stops evictions, and a large zone uses
	// SecondaryEvictionRate.
	LargeZone     int32
	UnhealthyZone float32
}

// DefaultJudgement returns the defaults of Kubernetes 1.36. Before 1.32, Grace was 40 s. These files have the defaults:
//
//	pkg/controller/nodelifecycle/config/v1alpha1/defaults.go            StartupGrace, Grace
//	cmd/kube-controller-manager/app/options/nodelifecyclecontroller.go  rates and zones
//	k8s.io/cloud-provider/config/v1alpha1/defaults.go                   MonitorPeriod
func DefaultJudgement() Judgement {
	return Judgement{
		MonitorPeriod: 5 * time.Second, StartupGrace: time.Minute, Grace: 50 * time.Second,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeZone: 50, UnhealthyZone: 0.55,
	}
}

// RunControllers runs two controllers of kube-controller-manager until ctx ends. The node lifecycle controller judges and taints
// silent nodes, and the taint eviction controller evicts their Pods. To restart both, call RunControllers again. The real program
// exits if it can't renew its lock. These controllers have no lock, and go on.
//
// The Transport must answer or refuse an urgent request (model.IsUrgent) without waiting for any time.
func RunControllers(ctx context.Context, cfg *rest.Config, j Judgement) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	defer cancel()
	cfg = client(cfg)
	cfg.Wrap(func(to http.RoundTripper) http.RoundTripper { return prompt{to} })
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make kube-controller-manager's client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(clients, 0)
	factory.InformerFor(&corev1.Pod{}, ordered(coreinformers.NewPodInformer))
	factory.InformerFor(&corev1.Node{}, ordered(func(
		c kubernetes.Interface, _ string, resync time.Duration, by cache.Indexers,
	) cache.SharedIndexInformer {
		return coreinformers.NewNodeInformer(c, resync, by)
	}))
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

// prompt changes the requests that kube-controller-manager sends while it holds a mutex, as its queue of nodes to taint does.
// While another goroutine waits for that mutex, time in the bubble stands still. A request that needs time would then never end,
// so prompt makes these requests urgent (model.WithUrgency).
//
// prompt also removes what would make client-go wait. It removes Retry-After from answers. It removes resourceVersion from reads:
// an old answer from a watch cache leads to a conflict, and a conflict leads to a pause.
type prompt struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p prompt) RoundTrip(r *http.Request) (*http.Response, error) {
	if !holdsMutex() {
		return p.RoundTripper.RoundTrip(r)
	}
	r = r.Clone(model.WithUrgency(r.Context()))
	query := r.URL.Query()
	query.Del("resourceVersion")
	r.URL.RawQuery = query.Encode()
	answer, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

// holdsMutex reports whether the caller works on an item of the queue of nodes, and so holds its mutex.
func holdsMutex() bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "scheduler.(*RateLimitedTimedQueue).Try") {
			return true
		}
		if !more {
			return false
		}
	}
}

// ordered returns a function that makes an informer whose lists are sorted by key. Kubernetes' own informers list in random
// order, so the same seed would not give the same history.
func ordered(
	made func(kubernetes.Interface, string, time.Duration, cache.Indexers) cache.SharedIndexInformer,
) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		by := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return orderedInformer{made(c, metav1.NamespaceAll, resync, by)}
	}
}

type orderedInformer struct{ cache.SharedIndexInformer }

// GetIndexer implements cache.SharedIndexInformer.
func (i orderedInformer) GetIndexer() cache.Indexer {
	return orderedIndexer{i.SharedIndexInformer.GetIndexer()}
}

type orderedIndexer struct{ cache.Indexer }

// List implements cache.Store.
func (i orderedIndexer) List() []any { return inOrder(i.Indexer.List()) }

// ByIndex implements cache.Indexer.
func (i orderedIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, value)
	return inOrder(found), err
}

func inOrder(objects []any) []any {
	//nolint:forcetypeassert // informers have objects
	key := func(o any) string { return cache.MetaObjectToName(o.(metav1.Object)).String() }
	slices.SortFunc(objects, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	return objects
}
