package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// watcher follows what the cloud says of the nodes, for status and for the end of the boot.
type watcher struct {
	access *rest.Config
	client kubernetes.Interface
	// ctx is the life of the lab: informers run in it.
	ctx    context.Context //nolint:containedctx // handed over at construction, by the process that owns the informers
	nodes  corelisters.NodeLister
	leases coordinationlisters.LeaseLister
	synced []cache.InformerSynced
	all    informers.SharedInformerFactory
	// nodesChanged has a token when a Node has changed since the last one was taken.
	nodesChanged chan struct{}
}

func newWatcher(ctx context.Context, pki string) (*watcher, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(pki, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	w := &watcher{access: cfg, client: client, ctx: ctx, nodesChanged: make(chan struct{}, 1)}
	w.all = informers.NewSharedInformerFactory(client, 0)
	nodes, leases := w.all.Core().V1().Nodes(), w.all.Coordination().V1().Leases()
	w.nodes, w.leases = nodes.Lister(), leases.Lister()
	w.synced = []cache.InformerSynced{nodes.Informer().HasSynced, leases.Informer().HasSynced}
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

// waitServing waits until the cloud's kube-apiserver is ready.
func (w *watcher) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last error
	for {
		try, cancelTry := context.WithTimeout(ctx, 2*time.Second)
		last = w.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(try).Error()
		cancelTry()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cloud's kube-apiserver is not ready: %w", last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// start begins to follow the nodes.
func (w *watcher) start(ctx context.Context) error {
	w.all.Start(w.ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return errors.New("the cloud does not list its nodes")
	}
	return nil
}

// waitReady waits until n nodes are Ready and take Pods, and reports each count.
func (w *watcher) waitReady(ctx context.Context, n int, progress func(string)) error {
	last := -1
	for {
		ready := 0
		for _, node := range w.list() {
			// kube-controller-manager takes its not-ready taint away only after the condition has changed.
			if condition(node, corev1.NodeReady).Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				ready++
			}
		}
		if ready != last {
			progress(fmt.Sprintf("%d of %d nodes Ready", ready, n))
			last = ready
		}
		if ready >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are Ready, and no more within the time allowed: %w", ready, n,
				context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *watcher) list() []*corev1.Node {
	nodes, err := w.nodes.List(everything)
	if err != nil {
		return nil // a lister over a cache has no way to fail
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
