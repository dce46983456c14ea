package cloudscale

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// turn is a value, and the time when it was first seen.
type turn struct {
	on bool
	at time.Time
}

func (t turn) to(on bool, now time.Time) turn {
	if t.on == on {
		return t
	}
	return turn{on, now}
}

// signs are what the controller reports about a node.
type signs struct {
	tainted, down, listed turn
	// judged says that the node has the condition.
	judged bool
}

// tracker learns from its own watches what the controller has made of the cluster, and when.
type tracker struct {
	mu    sync.Mutex
	nodes map[edge.NodeName]*signs
	// counted are the pools whose status counts all their nodes. ready are the coordinators that are ready.
	counted map[edge.PoolName]bool
	ready   map[edge.PoolName]bool
	listed  map[edge.PoolName][]string // delegatedNodes
	err     error
}

func newTracker() *tracker {
	return &tracker{
		nodes: make(map[edge.NodeName]*signs), counted: make(map[edge.PoolName]bool), ready: make(map[edge.PoolName]bool),
		listed: make(map[edge.PoolName][]string),
	}
}

// run follows everything from now on, until ctx ends.
func (t *tracker) run(ctx context.Context, c client.WithWatch, size int) {
	var working sync.WaitGroup
	for _, followed := range []struct {
		list client.ObjectList
		saw  func(runtime.Object, time.Time)
	}{
		{&corev1.NodeList{}, func(o runtime.Object, now time.Time) { t.sawNode(o, now) }},
		{&v1beta2.NodePoolList{}, func(o runtime.Object, _ time.Time) { t.sawPool(o, size) }},
		{&v1alpha1.YurtCoordinatorList{}, func(o runtime.Object, now time.Time) { t.sawCoordinator(o, now) }},
	} {
		working.Go(func() {
			if err := follow(ctx, c, followed.list, followed.saw); err != nil {
				t.mu.Lock()
				t.err = err
				t.mu.Unlock()
			}
		})
	}
	working.Wait()
}

// follow reports each object that exists, comes or changes.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, saw func(runtime.Object, time.Time),
	opts ...client.ListOption,
) error {
	if err := c.List(ctx, list, append(opts, client.Limit(1))...); err != nil {
		return err
	}
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return c.Watch(ctx, list, append(opts, &client.ListOptions{Raw: &o})...)
	}}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), source)
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Added || e.Type == watch.Modified {
			saw(e.Object, time.Now())
		}
	}
	return nil
}

func (t *tracker) ofLocked(n edge.NodeName) *signs {
	s := t.nodes[n]
	if s == nil {
		s = &signs{}
		t.nodes[n] = s
	}
	return s
}

func (t *tracker) sawNode(o runtime.Object, now time.Time) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == edge.TaintUnschedulable })
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == edge.ConditionCloudLinkDown
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.ofLocked(edge.NodeName(n.Name))
	s.tainted = s.tainted.to(tainted, now)
	if s.judged = i >= 0; s.judged {
		s.down = s.down.to(n.Status.Conditions[i].Status == corev1.ConditionTrue, now)
	}
}

func (t *tracker) sawPool(o runtime.Object, size int) {
	p, ok := o.(*v1beta2.NodePool)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted[edge.PoolName(p.Name)] = int(p.Status.ReadyNodeNum) == size && len(p.Status.Nodes) == size
}

func (t *tracker) sawCoordinator(o runtime.Object, now time.Time) {
	c, ok := o.(*v1alpha1.YurtCoordinator)
	if !ok {
		return
	}
	holds := func(kind v1alpha1.YurtCoordinatorConditionType) bool {
		return slices.ContainsFunc(c.Status.Conditions, func(c v1alpha1.YurtCoordinatorCondition) bool {
			return c.Type == kind && c.Status == v1alpha1.ConditionTrue
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pool := edge.PoolName(c.Spec.NodePool)
	t.ready[pool] = holds(v1alpha1.YurtCoordinatorReady) && holds(v1alpha1.YurtCoordinatorCertsReady)
	list := func(names []string, on bool) {
		for _, n := range names {
			s := t.ofLocked(edge.NodeName(n))
			s.listed = s.listed.to(on, now)
		}
	}
	is := c.Status.DelegatedNodes
	list(slices.DeleteFunc(t.listed[pool], func(n string) bool { return slices.Contains(is, n) }), false)
	list(is, true)
	t.listed[pool] = slices.Clone(is)
}

// tally is a count of nodes judged, pools counted and coordinators ready.
type tally struct{ judged, counted, ready int }

func (t *tracker) tally() (tally, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var n tally
	for _, s := range t.nodes {
		if s.judged {
			n.judged++
		}
	}
	for _, is := range t.counted {
		if is {
			n.counted++
		}
	}
	for _, is := range t.ready {
		if is {
			n.ready++
		}
	}
	return n, t.err
}

// lags are the times from a change of nodes' links until the controller had reported the change completely.
type lags struct {
	taint, condition, listed []time.Duration
}

// since returns the lags of nodes whose links were cut or healed at these times.
func (t *tracker) since(at map[edge.NodeName]time.Time, cut bool) (l lags, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, began := range at {
		s := t.ofLocked(n)
		if s.tainted.on != cut || s.down.on != cut || s.listed.on != cut {
			return lags{}, false
		}
		l.taint = append(l.taint, s.tainted.at.Sub(began))
		l.condition = append(l.condition, s.down.at.Sub(began))
		l.listed = append(l.listed, s.listed.at.Sub(began))
	}
	return l, true
}
