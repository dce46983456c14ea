package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/internal/edge"
)

// watcher follows what the cloud says about the nodes, for status and for the end of the boot.
type watcher struct {
	access *rest.Config
	client kubernetes.Interface
	// ctx is the life of the lab; its informers run in it.
	ctx    context.Context //nolint:containedctx // handed over at construction, by the process that owns the informers
	nodes  corelisters.NodeLister
	leases coordinationlisters.LeaseLister
	// coordinators are the Pods of coordinators, in an installed lab.
	coordinators corelisters.PodLister
	synced       []cache.InformerSynced
	all          []informers.SharedInformerFactory
	// nodesChanged has a token when a Node has changed since the last token was taken.
	nodesChanged chan struct{}
}

// newWatcher follows nothing yet.
func newWatcher(ctx context.Context, cfg *rest.Config, installed bool) (*watcher, error) {
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	w := &watcher{access: cfg, client: client, ctx: ctx, nodesChanged: make(chan struct{}, 1)}
	all := informers.NewSharedInformerFactory(client, 0)
	w.all = append(w.all, all)
	nodes, leases := all.Core().V1().Nodes(), all.Coordination().V1().Leases()
	w.nodes, w.leases = nodes.Lister(), leases.Lister()
	w.synced = []cache.InformerSynced{nodes.Informer().HasSynced, leases.Informer().HasSynced}
	if installed {
		system := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(edge.NamespaceSystem),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.LabelSelector = edge.LabelApp + "=" + edge.AppCoordinator
			}))
		w.all = append(w.all, system)
		pods := system.Core().V1().Pods()
		w.coordinators = pods.Lister()
		w.synced = append(w.synced, pods.Informer().HasSynced)
	}
	changed := func() {
		select {
		case w.nodesChanged <- struct{}{}:
		default:
		}
	}
	_, err = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	return w, err
}

// waitServing waits until the cloud's kube-apiserver is ready, which takes longer the more starts beside it.
func (w *watcher) waitServing(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := again(ctx, 50*time.Millisecond, func() error {
		try, cancelTry := context.WithTimeout(ctx, 2*time.Second)
		defer cancelTry()
		return w.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(try).Error()
	})
	if err != nil {
		return fmt.Errorf("the cloud's kube-apiserver is not ready: %w", err)
	}
	return nil
}

// start begins to follow the nodes.
func (w *watcher) start(ctx context.Context) error {
	for _, f := range w.all {
		f.Start(w.ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return errors.New("can't list the cloud's nodes")
	}
	return nil
}

// waitReady waits until the nodes at these places are Ready and accept Pods, and reports each count.
func (w *watcher) waitReady(ctx context.Context, all []place, progress func(string)) error {
	last, n := -1, len(all)
	return again(ctx, 50*time.Millisecond, func() error {
		ready := 0
		for _, node := range w.list() {
			if takesPods(node) {
				ready++
			}
		}
		if ready != last {
			progress(fmt.Sprintf("%d of %s Ready", ready, edge.Count(n, "node", "nodes")))
			last = ready
		}
		if ready < n {
			return fmt.Errorf("only %d of %s became Ready in time", ready, edge.Count(n, "node", "nodes"))
		}
		return nil
	})
}

// takesPods reports whether a node is Ready and has no taint, except the control plane's on the cloud's node.
// kube-controller-manager removes its not-ready taint only after the condition has changed.
func takesPods(n *corev1.Node) bool {
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return n.Name != cloudMachine || t.Key != labelControlPlane
	})
	return condition(n, corev1.NodeReady).Status == corev1.ConditionTrue && !tainted
}

func (w *watcher) list() []*corev1.Node {
	nodes, err := w.nodes.List(everything)
	if err != nil {
		return nil // a lister over a cache can't fail
	}
	return nodes
}

func condition(n *corev1.Node, t corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.NodeCondition{Type: t, Status: corev1.ConditionUnknown}
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
