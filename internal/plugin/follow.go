package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

const (
	// settle is how long changes are collected before pools are looked at again: one change of a pool is several of objects.
	settle = 300 * time.Millisecond
	// lookAgain is how often pools are looked at without a change: a leader that says nothing more is none after a while.
	lookAgain = 10 * time.Second
)

// shown is what was last shown of pools.
type shown struct {
	// texts are pools as they were shown, by their names.
	texts map[string]string
	// problems says that only pools with problems are shown, and those that had some when they were shown last.
	problems bool
}

// shownOf returns what a list of pools has shown.
func shownOf(pools []Pool, problems bool) *shown {
	s := &shown{texts: map[string]string{}, problems: problems}
	s.changed(pools)
	return s
}

// changed returns the pools that differ from what was last shown, and records them as shown. A pool does not differ if only its
// leader's report is newer.
func (s *shown) changed(pools []Pool) (all []Pool) {
	now := make(map[string]string, len(pools))
	for i := range pools {
		p := pools[i]
		p.LeaderSaid = nil
		was, known := s.texts[p.Name]
		text := fmt.Sprintf("%+v", p)
		if s.problems && !known && len(p.Problems) == 0 {
			continue
		}
		if s.problems && len(p.Problems) == 0 {
			all = append(all, pools[i]) // it is fine again
			continue
		}
		now[p.Name] = text
		if was != text {
			all = append(all, pools[i])
		}
	}
	s.texts = now
	return all
}

// follower shows pools that change.
type follower struct {
	reader *Reader
	// pools are the names of those to follow; without any, all.
	pools []string
	// show is called with those that have changed. An error ends run.
	show func(pools []Pool, now time.Time) error
	// complain is told why a watch can't go on, each time that it is tried again.
	complain func(error)
}

// run follows pools until ctx ends, which is no error.
func (f *follower) run(ctx context.Context, last *shown) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	dirty := make(chan struct{}, 1)
	stores, err := f.stores(ctx, &running, dirty)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-dirty:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(settle):
			}
		}
		now := time.Now()
		o, err := stores.objects(f.reader.Within)
		if err != nil {
			return err
		}
		if err := f.reader.beats(ctx, &o); err != nil {
			f.complain(err)
			continue
		}
		pools := PoolsOf(o, now)
		if len(f.pools) > 0 {
			pools = slices.DeleteFunc(pools, func(p Pool) bool { return !slices.Contains(f.pools, p.Name) })
		}
		if changed := last.changed(pools); len(changed) > 0 {
			if err := f.show(changed, now); err != nil {
				return err
			}
		}
	}
}

// stores are what watches keep up to date; nil means that a kind is not watched.
type stores struct{ pools, coordinators, nodes, leases, election cache.Store }

// stores begins the watches, and returns once each has its first list.
func (f *follower) stores(ctx context.Context, running *sync.WaitGroup, dirty chan<- struct{}) (s stores, err error) {
	r, began := f.reader, []cache.InformerSynced{}
	follow := func(lw *cache.ListWatch, client any, kind runtime.Object) cache.Store {
		i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), kind, 0, cache.Indexers{})
		told := func() {
			select {
			case dirty <- struct{}{}:
			default:
			}
		}
		_, err1 := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { told() }, UpdateFunc: func(any, any) { told() }, DeleteFunc: func(any) { told() },
		})
		err2 := i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { f.complain(err) })
		if err = firstOf(err, err1, err2); err == nil {
			running.Go(func() { i.RunWithContext(ctx) })
			began = append(began, i.HasSynced)
		}
		return i.GetStore()
	}
	leases := func(namespace string, narrow func(*metav1.ListOptions)) cache.Store {
		of := r.Kube.CoordinationV1().Leases(namespace)
		return follow(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				narrow(&o)
				return of.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				narrow(&o)
				return of.Watch(ctx, o)
			},
		}, r.Kube, &coordinationv1.Lease{})
	}
	ours := func(resource schema.GroupVersionResource) cache.Store {
		of := r.Dynamic.Resource(resource)
		return follow(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return of.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return of.Watch(ctx, o)
			},
		}, r.Dynamic, &unstructured.Unstructured{})
	}
	nodes := func(selector string) cache.Store {
		return follow(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return r.Kube.CoreV1().Nodes().List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return r.Kube.CoreV1().Nodes().Watch(ctx, o)
			},
		}, r.Kube, &corev1.Node{})
	}
	all := func(*metav1.ListOptions) {}
	if r.Within != "" {
		s.leases, s.nodes = leases(corev1.NamespaceNodeLease, all), nodes("")
		s.election = leases(edge.NamespaceSystem, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", edge.LeaseElection).String()
		})
	} else {
		served, err := r.served(ctx)
		if err != nil {
			return s, err
		}
		if served[nodePools] {
			s.pools = ours(nodePools)
			s.leases = leases(corev1.NamespaceNodeLease, func(o *metav1.ListOptions) { o.LabelSelector = edge.LabelNodePool })
		} else {
			s.leases, s.nodes = leases(corev1.NamespaceNodeLease, all), nodes(edge.LabelNodePool)
		}
		if served[yurtCoordinators] {
			s.coordinators = ours(yurtCoordinators)
		}
	}
	if err == nil {
		cache.WaitForCacheSync(ctx.Done(), began...) // or until ctx ends, which ends the caller too
	}
	return s, err
}

func firstOf(all ...error) error {
	i := slices.IndexFunc(all, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return all[i]
}

// served says which of our kinds the server knows.
func (r *Reader) served(ctx context.Context) (map[schema.GroupVersionResource]bool, error) {
	all := map[schema.GroupVersionResource]bool{}
	for _, resource := range []schema.GroupVersionResource{nodePools, yurtCoordinators} {
		known, err := r.knows(ctx, resource)
		if err != nil {
			return nil, err
		}
		all[resource] = known
	}
	return all, nil
}

// objects returns what the watches have.
func (s stores) objects(within edge.PoolName) (Objects, error) {
	o := Objects{Within: within, Leases: map[string]coordinationv1.Lease{}}
	var err error
	if o.Pools, err = storedAs[v1beta2.NodePool](s.pools); err != nil {
		return o, err
	}
	if o.Coordinators, err = storedAs[v1alpha1.YurtCoordinator](s.coordinators); err != nil {
		return o, err
	}
	for _, n := range stored[*corev1.Node](s.nodes) {
		o.Nodes = append(o.Nodes, *n)
	}
	for _, l := range stored[*coordinationv1.Lease](s.leases) {
		o.Leases[l.Name] = *l
	}
	for _, l := range stored[*coordinationv1.Lease](s.election) {
		o.Election = l
	}
	return o, nil
}

func stored[T any](in cache.Store) (all []T) {
	if in == nil {
		return nil
	}
	for _, o := range in.List() {
		if item, ok := o.(T); ok {
			all = append(all, item)
		}
	}
	return all
}

func storedAs[T any](in cache.Store) (all []T, err error) {
	for _, u := range stored[*unstructured.Unstructured](in) {
		item, err := converted[T](u)
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}
