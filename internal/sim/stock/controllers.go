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
	// LargeZone is the largest number of nodes of a small zone. Once the share UnhealthyZone of its nodes is not Ready, a small
	// zone stops evicting, and a larger one slows down.
	LargeZone     int32
	UnhealthyZone float32
}

// DefaultJudgement returns the defaults of Kubernetes 1.36, from
// pkg/controller/nodelifecycle/config/v1alpha1/defaults.go (graces),
// cmd/kube-controller-manager/app/options/nodelifecyclecontroller.go (rates and zones), and
// k8s.io/cloud-provider/config/v1alpha1/defaults.go (the period). Before 1.32, Grace was 40 s.
func DefaultJudgement() Judgement {
	return Judgement{
		MonitorPeriod: 5 * time.Second, StartupGrace: time.Minute, Grace: 50 * time.Second,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeZone: 50, UnhealthyZone: 0.55,
	}
}

// RunControllers runs those controllers of kube-controller-manager that act on silent nodes, until ctx ends. These are the node
// lifecycle controller, which judges and taints, and the taint eviction controller. To restart them, call it again.
//
// If model.IsUrgent is true for a request, the Transport must not let it wait for any time.
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

// prompt is for requests that kube-controller-manager sends while it holds a mutex; its queue of nodes to taint does that. If
// other goroutines wait for that mutex, time in the bubble stands still, so a request that waits for time to pass never ends.
// prompt therefore makes such requests urgent (model.WithUrgency). It also removes what would make client-go wait: Retry-After,
// and resourceVersion, because a read from a late cache leads to a conflict, and that to a pause. A real
// kube-controller-manager whose requests hang exits after ten seconds, because it does not renew its lock. Here, the world
// restarts it.
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

// ordered returns a function that makes an informer whose lists are sorted by key. The lists of Kubernetes' own informers come
// from a map, so their order differs each time.
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
