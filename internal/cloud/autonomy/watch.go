package autonomy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

const (
	// nodeWorkers is how many Nodes are handled at a time; each takes one list of its Pods and a few dozen writes. podWorkers is
	// how many single Pods are written at the same time. Pods have their own queue, so that a new Pod does not wait for thousands
	// of Nodes.
	nodeWorkers, podWorkers = 8, 8

	// reconcileTimeout bounds one sweep. A sweep that it cuts short has settled some Pods, and is retried.
	reconcileTimeout = 30 * time.Second

	// retryMax is the longest wait before a failed reconcile is tried again, before jitter.
	retryMax = 2 * time.Minute

	// watchRetryBase and watchRetryMax are the first and the longest wait before a broken watch starts again. Jitter takes away
	// up to half of it.
	watchRetryBase, watchRetryMax = 200 * time.Millisecond, 30 * time.Second

	// watchLife is how long we let a watch run, jittered up to twice of it. The next watch continues where it stopped.
	watchLife = 10 * time.Minute
)

// AddTo registers the controller with a manager. It runs while the manager leads. The manager's cache must keep the labels and
// conditions of Nodes, and the annotations that Annotations returns.
func (p *Policy) AddTo(mgr manager.Manager) error {
	w := &podWatch{policy: p, nodes: make(chan control.Queue, 1), pods: make(chan control.Queue, 1)}
	add := func(name string, workers int, f reconcile.Func, watched ...source.Source) error {
		return control.Controller{
			Name: name, Reconciler: f, Workers: workers, Timeout: reconcileTimeout, RetryMax: retryMax, Watch: watched,
			Chance: p.ends.Chance,
		}.AddTo(mgr)
	}
	return errors.Join(
		add("autonomy-node", nodeWorkers, p.reconcileNode,
			source.Kind(mgr.GetCache(), &corev1.Node{}, p.nodeHandler()), handOut(w.nodes)),
		add("autonomy-pod", podWorkers, p.reconcilePod, handOut(w.pods)),
		mgr.Add(w),
		autonomousRoll().AddTo(mgr, p.ends.Chance))
}

// handOut is a source that only hands its controller's queue, once, to the goroutine that fills it.
func handOut(to chan<- control.Queue) source.Source {
	return source.Func(func(_ context.Context, q control.Queue) error {
		to <- q
		return nil
	})
}

// nodeHandler keeps the registry of Nodes up to date. It enqueues a Node when its terms change or its condition does not match
// them. It also enqueues a new Node without terms, because its Pods may come from a deleted Node of the same name.
func (p *Policy) nodeHandler() handler.TypedFuncs[*corev1.Node, reconcile.Request] {
	add := func(node *corev1.Node, terms Terms, q control.Queue) {
		p.registry.put(edge.NodeName(node.Name), terms)
		q.Add(control.Request(edge.NodeName(node.Name)))
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q control.Queue) {
			terms := TermsOf(e.Object)
			if terms.Rule != Ordinary || mayBeMarked(conditionOf(e.Object)) || !e.IsInInitialList {
				add(e.Object, terms, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q control.Queue) {
			was, is := TermsOf(e.ObjectOld), TermsOf(e.ObjectNew)
			said := conditionOf(e.ObjectNew)
			concerned := is.Rule != Ordinary || mayBeMarked(said)
			if was != is || e.ObjectOld.UID != e.ObjectNew.UID || concerned && (!says(said, is.condition()) ||
				e.ObjectOld.Labels[edge.LabelNodePool] != e.ObjectNew.Labels[edge.LabelNodePool]) {
				add(e.ObjectNew, is, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q control.Queue) {
			q.Add(control.Request(edge.NodeName(e.Object.Name)))
		},
	}
}

// sawPod enqueues a Pod that needs a write now or later.
func (p *Policy) sawPod(pod *corev1.Pod, q control.Queue) {
	terms, put := p.registry.get(edge.NodeName(pod.Spec.NodeName))
	if put == 0 && !marked(pod) {
		return
	}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
	switch change, after := Plan(pod, terms, p.ends.Wall()); {
	case change.Step != Leave:
		q.Add(request)
	case after > 0:
		q.AddAfter(request, after)
	}
}

// marked reports whether the Pod carries an annotation of ours. A Pod of an ordinary node can carry one if it was copied from a
// Pod of an autonomous node.
func marked(pod *corev1.Pod) bool {
	for _, k := range kept {
		if _, found := pod.Annotations[k.annotation]; found {
			return true
		}
	}
	return false
}

// podWatch is the watch of all Pods. It runs while some Node's Pods must or may be marked.
type podWatch struct {
	policy *Policy
	// nodes and pods deliver the queues of the two controllers once they have started.
	nodes, pods chan control.Queue
}

// Start implements manager.Runnable. It ends only with ctx.
func (w *podWatch) Start(ctx context.Context) error {
	var nodes, pods control.Queue
	for nodes == nil || pods == nil {
		select {
		case nodes = <-w.nodes:
		case pods = <-w.pods:
		case <-ctx.Done():
			return nil
		}
	}
	log := klog.FromContext(ctx)
	backoff := run.Backoff{Min: watchRetryBase, Max: watchRetryMax}
	for ctx.Err() == nil {
		if _, err := w.policy.registry.any.Wait(ctx, func(needed bool) bool { return needed }); err != nil {
			return nil //nolint:nilerr // asked to stop
		}
		began, err := w.policy.follow(ctx, nodes, pods)
		if began {
			backoff.Reset()
		}
		if err != nil && ctx.Err() == nil {
			delay := backoff.Next(w.policy.ends.Float64())
			log.Error(err, "The watch of Pods failed; it will start again", "delay", delay)
			_ = run.Pause(ctx, delay)
		}
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *podWatch) NeedLeaderElection() bool { return true }

// follow watches Pods from the present revision on, and enqueues all Nodes of the registry, whose reconciles list the Pods that
// existed before. It returns nil when the registry is empty or ctx ends. began says that the watch has started.
func (p *Policy) follow(ctx context.Context, nodes, pods control.Queue) (began bool, err error) {
	var list corev1.PodList
	if err := p.pods.List(ctx, &list, client.Limit(1)); err != nil {
		return false, fmt.Errorf("read the current revision of Pods: %w", err)
	}
	revision := list.ResourceVersion
	backoff := run.Backoff{Min: watchRetryBase, Max: watchRetryMax}
	for {
		watcher, err := p.watchPods(ctx, revision)
		if err == nil {
			if !began {
				began = true
				for _, node := range p.registry.nodes() {
					nodes.Add(control.Request(node))
				}
			}
			last := revision
			if revision, err = p.read(ctx, watcher, revision, pods); revision != last {
				backoff.Reset()
			}
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, errNobody):
			return began, nil //nolint:nilerr // asked to stop, or not needed
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			return began, err
		case err != nil && !errors.Is(err, io.EOF):
			klog.FromContext(ctx).Error(err, "The watch of Pods broke; it continues from its last revision", "revision", revision)
		}
		_ = run.Pause(ctx, backoff.Next(p.ends.Float64()))
	}
}

func (p *Policy) watchPods(ctx context.Context, revision string) (watch.Interface, error) {
	seconds := int64(p.ends.Jitter(watchLife, 1).Seconds())
	watcher, err := p.pods.Watch(ctx, &corev1.PodList{}, &client.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermNotEqualSelector(fieldNode, ""),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed))),
		Raw: &metav1.ListOptions{ResourceVersion: revision, AllowWatchBookmarks: true, TimeoutSeconds: &seconds},
	})
	if err != nil {
		return nil, fmt.Errorf("watch Pods: %w", err)
	}
	return watcher, nil
}

// errNobody says that no Node remains whose Pods must or may be marked.
var errNobody = errors.New("no autonomous node")

// read handles the events of a watch until it ends, and returns the last revision that the watch sent. The error is io.EOF if
// the watch just ended, and errNobody if no Node needs the watch any more.
func (p *Policy) read(ctx context.Context, w watch.Interface, revision string, pods control.Queue) (string, error) {
	defer w.Stop()
	for {
		needed, changed := p.registry.any.Watch()
		if !needed {
			return revision, errNobody
		}
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return revision, io.EOF
			}
			if e.Type == watch.Error {
				return revision, apierrors.FromObject(e.Object)
			}
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				return revision, fmt.Errorf("the watch of Pods sent a %T", e.Object)
			}
			if e.Type == watch.Added || e.Type == watch.Modified {
				p.sawPod(pod, pods)
			}
			revision = pod.ResourceVersion
		case <-changed:
		case <-ctx.Done():
			return revision, ctx.Err()
		}
	}
}
