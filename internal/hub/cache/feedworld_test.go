package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

var slices1 = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

// feedStore is a source in memory with a history and faults.
type feedStore struct {
	mu       sync.Mutex
	revision edge.Revision
	oldest   edge.Revision // changes at or before it are forgotten
	objects  map[stream.Key]stream.Object
	history  []stream.Event
	complete bool
	fault    error         // of new requests
	slow     time.Duration // of each list
	dead     bool          // nothing that is sent arrives, and nothing ends
	ticks    bool          // bookmarks come
	early    bool          // a bookmark comes at once
	tells    bool          // it says how far it has come
	in       edge.History  // of a mirror: what its content is of
	changed  chan struct{}
	epoch    int // watches of an earlier one are over
	ending   error

	lists, watches, open, together, looks int
}

var (
	_ Sink = (*replica.Replica)(nil)
)

func newStore(revision edge.Revision, names ...string) *feedStore {
	s := &feedStore{
		revision: revision, oldest: revision, objects: map[stream.Key]stream.Object{}, complete: true,
		changed: make(chan struct{}),
	}
	for _, n := range names {
		s.put(n)
	}
	return s
}

func (s *feedStore) do(act func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	act()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *feedStore) put(name string) {
	s.do(func() {
		s.revision++
		o := stream.Object{Key: stream.Key{Name: name}, Revision: s.revision, Raw: []byte(name)}
		kind := stream.Added
		if _, has := s.objects[o.Key]; has {
			kind = stream.Modified
		}
		s.objects[o.Key] = o
		s.history = append(s.history, stream.Event{Type: kind, Object: o})
	})
}

// counts returns how often it was listed and watched, and how many lists there were at a time.
func (s *feedStore) counts() (lists, watches, together int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches, s.together
}

// compact forgets all history.
func (s *feedStore) compact() { s.do(func() { s.oldest, s.history = s.revision, nil }) }

// end ends all watches.
func (s *feedStore) end(err error) { s.do(func() { s.epoch++; s.ending = err }) }

// copy makes the store what another is, as a mirror is filled: a new history.
func (s *feedStore) copy(from *feedStore) {
	from.mu.Lock()
	objects, revision := maps.Clone(from.objects), from.revision
	from.mu.Unlock()
	s.do(func() {
		s.objects, s.revision, s.oldest, s.history, s.complete = objects, revision, revision, nil, true
		s.epoch++
		s.ending = stream.ErrExpired
	})
}

// relay adds what another store has beyond this one.
func (s *feedStore) relay(from *feedStore) {
	from.mu.Lock()
	events := slices.Clone(from.history)
	from.mu.Unlock()
	s.do(func() {
		for _, e := range events {
			if e.Object.Revision > s.revision {
				s.revision = e.Object.Revision
				s.objects[e.Object.Key] = e.Object
				s.history = append(s.history, e)
			}
		}
	})
}

func (s *feedStore) wait(ctx context.Context, ready func() bool) error {
	for {
		s.mu.Lock()
		done, changed := !s.dead && ready(), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *feedStore) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	s.mu.Lock()
	s.lists++
	s.open++
	s.together = max(s.together, s.open)
	slow := s.slow
	s.mu.Unlock()
	defer s.do(func() { s.open-- })
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return stream.Snapshot{}, context.Cause(ctx)
		}
	}
	if err := s.wait(ctx, func() bool { return true }); err != nil {
		return stream.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return stream.Snapshot{}, s.fault
	}
	if !s.complete {
		return stream.Snapshot{}, stream.ErrNotReady
	}
	snapshot := stream.Snapshot{Revision: s.revision, History: s.in}
	for _, k := range slices.SortedFunc(maps.Keys(s.objects), stream.Key.Compare) {
		snapshot.Objects = append(snapshot.Objects, s.objects[k])
	}
	return snapshot, nil
}

// Look is a store's, as far as it remembers.
func (s *feedStore) Look(ctx context.Context, key stream.Key, at edge.Revision) (current, object edge.Revision, err error) {
	if err := s.wait(ctx, func() bool { return true }); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	for k := range s.objects {
		if key == (stream.Key{}) {
			key = k
		}
	}
	switch {
	case s.fault != nil:
		return 0, 0, s.fault
	case at == 0:
		return s.revision, s.objects[key].Revision, nil
	case at < s.oldest:
		return 0, 0, stream.ErrExpired
	case s.objects[key].Revision <= at:
		return s.revision, s.objects[key].Revision, nil
	}
	for _, e := range s.history {
		if e.Object.Key == key && e.Object.Revision <= at {
			object = e.Object.Revision
		}
	}
	return s.revision, object, nil
}

// restore sets the store back to a backup of a revision, as if each of its revisions were one of the objects named.
func (s *feedStore) restore(revision edge.Revision, names ...string) {
	s.do(func() {
		s.revision, s.oldest, s.history = revision-edge.Revision(len(names)), 0, nil
		clear(s.objects)
		s.epoch++
		s.ending = errors.New("connection reset")
	})
	for _, n := range names {
		s.put(n)
	}
}

func (s *feedStore) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	if err := s.wait(ctx, func() bool { return true }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	switch {
	case s.fault != nil:
		return nil, s.fault
	case !s.complete:
		return nil, stream.ErrNotReady
	case after < s.oldest:
		return nil, stream.ErrExpired
	case after == 0:
		panic("a watch after no revision")
	}
	return &watching{store: s, after: after, epoch: s.epoch}, nil
}

// WatchIn is a mirror's.
func (s *feedStore) WatchIn(
	ctx context.Context, in edge.History, after edge.Revision,
) (stream.Watch, edge.Revision, error) {
	s.mu.Lock()
	at, other, filled := s.revision, in != s.in, s.in.IsFilled()
	if !s.tells {
		at = 0
	}
	s.mu.Unlock()
	switch {
	case other && filled:
		s.do(func() { s.watches++ })
		return nil, 0, stream.ErrNotReady
	case other:
		return nil, 0, stream.ErrExpired
	}
	w, err := s.Watch(ctx, after)
	return w, at, err
}

type watching struct {
	store *feedStore
	after edge.Revision
	epoch int
	begun bool
}

func (w *watching) Next(ctx context.Context) (events []stream.Event, err error) {
	var tick <-chan time.Time
	s := w.store
	if s.ticks {
		timer := time.NewTimer(time.Minute)
		defer timer.Stop()
		tick = timer.C
	}
	for {
		s.mu.Lock()
		over, changed := w.epoch != s.epoch, s.changed
		for _, e := range s.history {
			if e.Object.Revision > w.after && !s.dead {
				events = append(events, e)
			}
		}
		err = s.ending
		early := s.early && !w.begun
		w.begun = true
		bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: s.revision}}
		s.mu.Unlock()
		switch {
		case over:
			return nil, err
		case len(events) > 0:
			w.after = events[len(events)-1].Object.Revision
			return events, nil
		case early:
			return []stream.Event{bookmark}, nil
		}
		select {
		case <-changed:
		case <-tick:
			return []stream.Event{bookmark}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (w *watching) Close() error { return nil }

// sink holds what it is given to the rules of streams.
type sink struct {
	t        *testing.T
	mu       sync.Mutex
	position edge.Revision
	history  edge.History
	objects  map[stream.Key]stream.Object
	replaced int
	unfit    int // Apply refuses so many times
}

func (s *sink) Position() edge.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// counts returns the number of objects, and how often it was replaced.
func (s *sink) counts() (objects, replaced int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects), s.replaced
}

func (s *sink) Replace(_ context.Context, snapshot stream.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.position != 0 && snapshot.History < s.history || snapshot.History == s.history && snapshot.Revision < s.position {
		s.t.Errorf("a snapshot of revision %s over %s", snapshot.Revision, s.position)
	}
	s.replaced++
	s.history = snapshot.History
	s.setLocked(snapshot)
	return nil
}

func (s *sink) setLocked(snapshot stream.Snapshot) {
	s.position, s.objects = snapshot.Revision, map[stream.Key]stream.Object{}
	for _, o := range snapshot.Objects {
		s.objects[o.Key] = o
	}
}

func (s *sink) Apply(_ context.Context, events []stream.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfit > 0 {
		s.unfit--
		return errors.New("disorder")
	}
	for _, e := range events {
		switch {
		case e.Type == stream.Bookmark:
			s.position = max(s.position, e.Object.Revision)
		case e.Object.Revision <= s.position:
		case e.Object.Revision != s.position+1:
			// Every revision of these stores is a change of this resource.
			s.t.Errorf("revision %s follows %s: something is missing", e.Object.Revision, s.position)
			fallthrough
		default:
			s.position, s.objects[e.Object.Key] = e.Object.Revision, e.Object
		}
	}
	return nil
}

func (s *sink) Snapshot(context.Context) (stream.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stream.Snapshot{Revision: s.position, History: s.history, Objects: slices.Collect(maps.Values(s.objects))}, nil
}

func (s *sink) History() edge.History {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history
}

func (s *sink) Get(k stream.Key) (stream.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, has := s.objects[k]
	return o, has
}

func (s *sink) Stats() replica.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return replica.Stats{Objects: len(s.objects)}
}

// feedWorld is a hub's feed with its surroundings.
type feedWorld struct {
	t                     *testing.T
	cloud, mirror         *feedStore
	cloudLink, mirrorLink *live.Value[link.State]
	standing              *live.Value[lead.Standing]
	covered               *live.Value[bool]
	sink                  *sink
	feed                  *Feed
	registry              *prometheus.Registry
	stop                  func()
	alone                 bool
	lists                 chan struct{}
	precious              bool
	declared              *live.Value[edge.History]
	pages                 *thinLine      // nil: lists are read whole
	history               *HistoryKeeper // none: the cloud's history never changes
	histories             func() History // instead, if it is set
}

// inFeedWorld runs a test with the cloud at revision 103 and a mirror that has nothing; all links are down.
func inFeedWorld(t *testing.T, test func(*feedWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &feedWorld{
			t: t, cloud: newStore(100, "a", "b", "c"), mirror: newStore(0),
			cloudLink: live.NewValue(link.Down), mirrorLink: live.NewValue(link.Down),
			standing: &live.Value[lead.Standing]{}, covered: &live.Value[bool]{}, declared: &live.Value[edge.History]{},
			lists: make(chan struct{}, 1),
			sink:  &sink{t: t, objects: map[stream.Key]stream.Object{}},
		}
		w.cloud.ticks, w.mirror.ticks = true, true
		w.mirror.complete = false
		test(w)
		if w.stop != nil {
			w.stop()
		}
	})
}

// unproven is a history that nobody asks the cloud about: it is the one that it was always in, until its lists say otherwise.
type unproven struct{ *live.Value[HistoryState] }

func (u unproven) State() *live.Value[HistoryState] { return u.Value }
func (unproven) Saw(Witness)                        {}
func (unproven) Prove(Witness)                      {}
func (unproven) Shaken()                            {}
func (unproven) Leave()                             {}
func (u unproven) Raise(n edge.History)             { u.Set(HistoryState{Number: n, Sure: true}) }

// neverProven returns such a history to each feed.
func neverProven() History { return unproven{live.NewValue(HistoryState{Sure: true})} }

func (w *feedWorld) begin() {
	w.t.Helper()
	w.registry = prometheus.NewRegistry()
	config := FeedConfig{
		Resource: slices1, Sink: w.sink, Cloud: w.cloud, CloudLink: w.cloudLink, Metrics: NewFeedMetrics(w.registry),
		Lists:       w.lists,
		Coordinator: w.mirror, CoordinatorLink: w.mirrorLink, Standing: w.standing, Covered: w.covered,
		CoveredHistory: w.declared, Precious: w.precious, History: neverProven,
	}
	if w.alone {
		config.Coordinator = nil
	}
	if w.pages != nil {
		config.Cloud, config.Pages = w.pages, w.pages
	}
	if w.histories != nil {
		config.History = w.histories
	}
	if w.history != nil {
		config.History = func() History { return w.history.Of("", slices1.GroupResource()) }
	}
	w.feed = NewFeed(config)
	ctx, cancel := context.WithCancel(klog.NewContext(w.t.Context(), ktesting.NewLogger(w.t, ktesting.NewConfig())))
	done := make(chan struct{})
	go func() {
		defer close(done)
		var beside sync.WaitGroup
		defer beside.Wait()
		if w.history != nil {
			beside.Go(func() { _ = w.history.Run(ctx) })
		}
		w.feed.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
		w.stop = nil
	}
	synctest.Wait()
}

// beginAlone begins without a coordinator; the cloud can be reached.
func (w *feedWorld) beginAlone() {
	w.t.Helper()
	w.alone = true
	w.links(link.Up, link.Down)
	w.begin()
}

// beginAs begins as the leader n1, or as a follower of n2, in a pool in which all can be reached.
func (w *feedWorld) beginAs(r lead.Role, covered bool) {
	w.t.Helper()
	leader := map[lead.Role]edge.NodeName{lead.Leader: "n1", lead.Follower: "n2"}[r]
	w.standing.Set(lead.Standing{Role: r, Leader: leader})
	w.covered.Set(covered)
	w.links(link.Up, link.Up)
	w.begin()
}

func (w *feedWorld) links(cloud, mirror link.State) {
	w.cloudLink.Set(cloud)
	w.mirrorLink.Set(mirror)
	synctest.Wait()
}

func (w *feedWorld) is(r lead.Role, leader edge.NodeName) {
	w.standing.Set(lead.Standing{Role: r, Leader: leader})
	synctest.Wait()
}

func (w *feedWorld) cover(covered bool) {
	w.covered.Set(covered)
	synctest.Wait()
}

func (w *feedWorld) pass(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

// want holds the feed to a source, and the sink to what the cloud has.
func (w *feedWorld) want(o Origin, cloudLists int) {
	w.t.Helper()
	synctest.Wait()
	s := w.feed.Status().Get()
	if s.Source != o || s.Live != (o != None) {
		w.t.Errorf("fed from %s, live %v (%s); want %s", s.Source, s.Live, s.Refused, o)
	}
	if lists, _, _ := w.cloud.counts(); lists != cloudLists {
		w.t.Errorf("%d lists over the WAN, want %d", lists, cloudLists)
	}
}

// has holds the sink to a store's content.
func (w *feedWorld) has(s *feedStore) {
	w.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.position != s.revision || fmt.Sprint(w.sink.objects) != fmt.Sprint(s.objects) {
		w.t.Errorf("the sink has %v at %s, want %v at %s", w.sink.objects, w.sink.position, s.objects, s.revision)
	}
}

var errEOF = io.EOF
