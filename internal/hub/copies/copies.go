// Package copies is the set of resources that a hub keeps replicas of: which those are at the moment, each fed while
// somebody needs it, all served by one handler.
//
// Invariants: a resource of the set is answered by its replica or not at all, never half by a replica and half by the
// cloud; one that leaves the set ends its clients' watches, and their next requests, which carry the cloud's revisions,
// go to the cloud. Each replica has one feed, which has ended before the replica is closed and before the resource can
// come back into the set. Set.Run owns all goroutines.
package copies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
)

// Feed keeps one replica up to date.
type Feed interface {
	// Run feeds until ctx ends and then returns nil; it returns early only on a defect of the program.
	Run(ctx context.Context) error
	// Live reports whether the replica follows the cloud itself at the moment.
	Live() bool
	// Source names where the replica's content comes from at the moment: "cloud", "coordinator" or "none".
	Source() string
	// Unreachable reports whether there is nobody to ask at the moment.
	Unreachable() bool
}

// Saver keeps what survives the hub true to a replica.
type Saver interface {
	// Run does so until ctx ends.
	Run(ctx context.Context)
	// Sync returns when all that the replica has now would survive, or with the cause of ctx.
	Sync(ctx context.Context) error
}

// Copy is one resource of the set.
type Copy struct {
	Resource schema.GroupVersionResource
	// Shared: the resource belongs to the pool, and its leader pushes it to the coordinator.
	Shared  bool
	Replica *replica.Replica
	Feed    Feed

	handler *replica.Handler
	kubelet *replica.Handler // what serves kubelet
	restore func(context.Context, *replica.Replica) Saver
	saver   atomic.Pointer[Saver]
	ready   func(context.Context)
	wanted  chan struct{} // closed when somebody needs the content
	want    func()
	// restored is closed when the replica has what has survived of it.
	restored chan struct{}
}

// Config says how copies are made.
type Config struct {
	// Always are resources that belong to the set whatever Change says, but are not shared unless it names them.
	Always []schema.GroupVersionResource
	// NewFeed makes the feed of a replica; shared as in Copy. Required.
	NewFeed func(r *replica.Replica, shared bool) (Feed, error)
	// View is what this node's programs see of a resource; nil, or a nil View: all of it as it is. The function is called
	// before a request is served, and returns when the View knows what it needs, or can't be waited for any longer.
	View func(schema.GroupVersionResource) (replica.View, func(context.Context))
	// KubeletView is what kubelet sees of a resource instead; nil, or a nil View: the same as all others.
	KubeletView func(schema.GroupVersionResource) replica.View
	// Restore fills a replica with what has survived of it, and returns what keeps that up to date. Default: nothing
	// survives the hub.
	Restore func(ctx context.Context, r *replica.Replica) Saver
	// Eager has shared resources fed at once, and not from the first request on: their pool may need them from this hub.
	Eager bool
}

// Set is the set. Make one with New. Safe for concurrent use.
type Set struct {
	cfg     Config
	current atomic.Pointer[map[schema.GroupVersionResource]*Copy] // the map is never written to

	mu      sync.Mutex
	shared  []schema.GroupVersionResource // wanted
	wakeRun chan struct{}                 // closed when shared has changed
	changed chan struct{}                 // closed when current has changed

	begun    chan struct{} // closed when the set is as New was told
	hasBegun func()
}

// New returns the set that Run will bring about.
func New(cfg Config, shared []schema.GroupVersionResource) (*Set, error) {
	if cfg.NewFeed == nil {
		return nil, errors.New("copies: Config.NewFeed is required")
	}
	s := &Set{
		cfg: cfg, shared: slices.Clone(shared), wakeRun: make(chan struct{}), changed: make(chan struct{}),
	}
	s.begun = make(chan struct{})
	s.hasBegun = sync.OnceFunc(func() { close(s.begun) })
	s.current.Store(&map[schema.GroupVersionResource]*Copy{})
	return s, nil
}

// Change sets which resources are shared from now on. What is in the set already, and stays, is not disturbed.
func (s *Set) Change(shared []schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = slices.Clone(shared)
	close(s.wakeRun)
	s.wakeRun = make(chan struct{})
}

// Copies returns what the set has, by resource, and a channel that is closed when that is no longer so.
func (s *Set) Copies() ([]*Copy, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Values(*s.current.Load()), func(a, b *Copy) int {
		return strings.Compare(a.Resource.String(), b.Resource.String())
	})
	return all, s.changed
}

// Find returns the copy of a resource, and nil if there is none.
func (s *Set) Find(r schema.GroupVersionResource) *Copy { return (*s.current.Load())[r] }

// Begun is closed once Run has brought the set about: a request that is served before goes to the cloud, and a watch stays
// there.
func (s *Set) Begun() <-chan struct{} { return s.begun }

// Has reports whether there is a copy of a resource.
func (s *Set) Has(r schema.GroupVersionResource) bool { return s.Find(r) != nil }

// Want has a copy's feed started, if it waits for somebody who needs it.
func (c *Copy) Want() { c.want() }

func (c *Copy) isWanted() bool {
	select {
	case <-c.wanted:
		return true
	default:
		return false
	}
}

// Run keeps the set as it is wanted until ctx ends; then it ends all feeds and watches. A feed that fails ends it.
func (s *Set) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var feeds sync.WaitGroup
	stops := map[schema.GroupVersionResource]func(){}
	defer func() {
		cancel(nil)
		s.publish(nil)
		for _, stop := range stops {
			stop()
		}
		feeds.Wait()
	}()
	for {
		s.mu.Lock()
		shared, wake := s.shared, s.wakeRun
		s.mu.Unlock()
		if err := s.bringAbout(ctx, shared, stops, func(c *Copy) {
			each, stop := context.WithCancel(ctx)
			ended := make(chan struct{})
			stops[c.Resource] = func() {
				stop()
				<-ended
				c.Replica.Close()
			}
			feeds.Go(func() {
				defer close(ended)
				if err := c.run(each); err != nil && each.Err() == nil {
					cancel(fmt.Errorf("copy of %s: %w", c.Resource.GroupResource(), err))
				}
			})
		}); err != nil {
			return err
		}
		s.hasBegun()
		select {
		case <-wake:
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		}
	}
}

// bringAbout makes the set what it should be: stops what has to go, then starts what has to come.
func (s *Set) bringAbout(
	ctx context.Context, shared []schema.GroupVersionResource, stops map[schema.GroupVersionResource]func(), start func(*Copy),
) error {
	wanted := map[schema.GroupVersionResource]bool{}
	for _, r := range s.cfg.Always {
		wanted[r] = false
	}
	for _, r := range shared {
		wanted[r] = true
	}
	before := *s.current.Load()
	next, gone := map[schema.GroupVersionResource]*Copy{}, map[schema.GroupVersionResource]*Copy{}
	var come []*Copy
	for r, isShared := range wanted {
		c := before[r]
		if c == nil || c.Shared != isShared {
			var err error
			if c, err = s.newCopy(r, isShared); err != nil {
				return err
			}
			come = append(come, c)
		}
		next[r] = c
	}
	for r, c := range before {
		switch {
		case next[r] == c:
			continue
		case next[r] != nil && c.isWanted():
			next[r].Want() // whoever needed the one needs the other
		}
		gone[r] = c
	}
	// First, so that no new request meets a replica that is being closed, and none for what stays goes to the cloud.
	s.publish(next)
	for r, c := range gone {
		klog.FromContext(ctx).Info("No longer keeping a copy", "resource", r.GroupResource(), "shared", c.Shared)
		stops[r]()
		delete(stops, r)
	}
	for _, c := range come {
		start(c)
	}
	return nil
}

func (s *Set) publish(next map[schema.GroupVersionResource]*Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Store(&next)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Set) newCopy(r schema.GroupVersionResource, shared bool) (*Copy, error) {
	c := &Copy{Resource: r, Shared: shared, restore: s.cfg.Restore, wanted: make(chan struct{}), restored: make(chan struct{})}
	c.want = sync.OnceFunc(func() { close(c.wanted) })
	var err error
	if c.Replica, err = replica.New(replica.Config{Resource: r}); err != nil {
		return nil, err
	}
	if c.Feed, err = s.cfg.NewFeed(c.Replica, shared); err != nil {
		return nil, err
	}
	handler := replica.HandlerConfig{Replica: c.Replica, BeforeExpired: c.sync}
	if s.cfg.View != nil {
		handler.View, c.ready = s.cfg.View(r)
	}
	if c.handler, err = replica.NewHandler(handler); err != nil {
		return nil, err
	}
	c.kubelet = c.handler
	if s.cfg.KubeletView != nil {
		if view := s.cfg.KubeletView(r); view != nil {
			handler.View = view
			if c.kubelet, err = replica.NewHandler(handler); err != nil {
				return nil, err
			}
		}
	}
	if shared && s.cfg.Eager {
		c.Want()
	}
	return c, nil
}

// sync has what clients have been told survive.
func (c *Copy) sync(ctx context.Context) {
	if s := c.saver.Load(); s != nil {
		_ = (*s).Sync(ctx) // a disk that is full does not keep anybody waiting for longer
	}
}

func (c *Copy) run(ctx context.Context) error {
	select {
	case <-c.wanted:
	case <-ctx.Done():
		return nil
	}
	if c.restore == nil {
		close(c.restored)
		return c.Feed.Run(ctx)
	}
	var saving sync.WaitGroup
	defer saving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := c.restore(ctx, c.Replica)
	c.saver.Store(&s)
	close(c.restored)
	saving.Go(func() { s.Run(ctx) })
	return c.Feed.Run(ctx)
}

// ServeHTTP answers get, list and watch of a resource of the set from its replica. The request's context has its
// RequestInfo.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo: a defect of yurthub", http.StatusInternalServerError)
		return
	}
	c := s.Find(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if c == nil {
		// It has left the set since the request was routed. The client tries again and is answered by the cloud.
		replica.Refuse(w, "yurthub: it has just stopped to keep a copy of this resource; try again")
		return
	}
	c.Want()
	select {
	case <-c.restored:
	case <-r.Context().Done():
		return
	}
	if !c.Replica.Complete().Get() && c.Feed.Unreachable() {
		replica.Refuse(w, "yurthub: all of this resource was never known here, and there is nobody to ask")
		return
	}
	if c.ready != nil {
		c.ready(r.Context())
	}
	handler := c.handler
	if strings.HasPrefix(r.UserAgent(), "kubelet/") {
		handler = c.kubelet
	}
	handler.Serve(w, r, replica.Request{Verb: info.Verb, Namespace: info.Namespace, Name: info.Name})
}

// Status is what the set says of one copy.
type Status struct {
	Resource string `json:"resource"` // as in endpointslices.discovery.k8s.io
	Shared   bool   `json:"shared,omitempty"`
	// Source is where the content comes from: cloud, coordinator or none.
	Source string `json:"source"`
	// Revision is the cloud's revision up to which the copy is complete; 0: it is not.
	Revision edge.Revision `json:"revision"`
	Objects  int           `json:"objects"`
	// Bytes is what the objects take, encoded; HistoryBytes what is kept besides for watches that resume.
	Bytes        int `json:"bytes"`
	HistoryBytes int `json:"historyBytes"`
	Watches      int `json:"watches"`
}

// Status returns the state of each copy, by resource.
func (s *Set) Status() []Status {
	copies, _ := s.Copies()
	all := make([]Status, 0, len(copies))
	for _, c := range copies {
		stats := c.Replica.Stats()
		all = append(all, Status{
			Resource: c.Resource.GroupResource().String(), Shared: c.Shared, Source: c.Feed.Source(), Revision: stats.Position,
			Objects: stats.Objects, Bytes: stats.ObjectBytes, HistoryBytes: stats.HistoryBytes, Watches: stats.Watchers,
		})
	}
	return all
}
