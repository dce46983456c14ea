package streamtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Sources tests a Source. build is called once for each test; what it builds ends with that test's t.
func Sources(t *testing.T, build func(t *testing.T) SourceHarness) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, h SourceHarness)
	}{
		{"Snapshot", snapshot},
		{"WatchTellsAllInOrder", watchTellsAll},
		{"WatchResumes", watchResumes},
		{"WatchWaitsForFutureRevisions", watchFuture},
		{"WatchOfNothing", watchZero},
		{"WatchExpires", watchExpires},
		{"WatchersAreIndependent", watchersIndependent},
		{"ContextEndsNext", contextEndsNext},
		{"ContextOfWatchBoundsOnlyTheOpening", contextOfWatch},
		{"Close", closeTwice},
		{"CloseDuringNext", closeDuringNext},
		{"EventsKeepTheirBytes", eventsKeepBytes},
		{"SnapshotThenWatchMissesNothing", missesNothing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, build(t)) })
	}
}

// reader follows a Watch and holds it to the contract.
type reader struct {
	t     *testing.T
	watch stream.Watch
	last  edge.Revision // the last revision told, or that the watch began after
	told  []stream.Event
}

func watchAfter(t *testing.T, s stream.Source, after edge.Revision) *reader {
	t.Helper()
	w, err := s.Watch(patience(t), after)
	if err != nil {
		t.Fatalf("watch after %s: %v", after, err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return &reader{t: t, watch: w, last: after}
}

// next reads a batch. It is an error, not Fatal, for it is called by other goroutines too.
func (r *reader) next(ctx context.Context) error {
	events, err := r.watch.Next(ctx)
	if err != nil {
		return fmt.Errorf("after revision %s: %w", r.last, err)
	}
	if len(events) == 0 {
		return errors.New("the call of Next returned neither events nor an error")
	}
	for _, e := range events {
		revision := e.Object.Revision
		switch e.Type {
		case stream.Added, stream.Modified, stream.Deleted:
			if revision <= r.last {
				return fmt.Errorf("%v %s of revision %s after %s", e.Type, e.Object.Key, revision, r.last)
			}
			if e.Object.Key.Name == "" || len(e.Object.Raw) == 0 {
				return fmt.Errorf("%v of revision %s: it has no key or no bytes", e.Type, revision)
			}
			r.told = append(r.told, e)
		case stream.Bookmark:
			if revision < r.last {
				return fmt.Errorf("bookmark of revision %s after %s", revision, r.last)
			}
		default:
			return fmt.Errorf("event of type %d: a Watch must not tell it", e.Type)
		}
		r.last = revision
	}
	return nil
}

// until reads up to a revision; more than it wants to see is no error here.
func (r *reader) until(revision edge.Revision) {
	r.t.Helper()
	ctx := patience(r.t)
	for r.last < revision {
		if err := r.next(ctx); err != nil {
			r.t.Fatalf("wait for revision %s: %v", revision, err)
		}
	}
}

// want compares all that was told with what happened.
func (r *reader) want(events []stream.Event) {
	r.t.Helper()
	if diff := differ(r.told, events); diff != "" {
		r.t.Fatal(diff)
	}
}

func differ(got, want []stream.Event) string {
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.Type != w.Type || g.Object.Key != w.Object.Key || g.Object.Revision != w.Object.Revision ||
			string(g.Object.Raw) != string(w.Object.Raw) {
			return fmt.Sprintf("event %d is %v %s@%s %q,\nwant %v %s@%s %q", i, g.Type, g.Object.Key, g.Object.Revision,
				g.Object.Raw, w.Type, w.Object.Key, w.Object.Revision, w.Object.Raw)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d events were told, want %d", len(got), len(want))
	}
	return ""
}

func snapshot(t *testing.T, h SourceHarness) {
	s, err := h.Source().Snapshot(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Objects) != 0 || s.Revision == 0 {
		t.Fatalf("of nothing: %v of revision %s, want no objects and a revision", keys(s.Objects), s.Revision)
	}
	past := newHistory(h.Type(), h.Revision())
	// "a-b" sorts before "a" with a slash behind it, as a store has its keys, but not as Key.Compare has it.
	h.Change(past.put("a", "x", "1"), past.put("b", "x", "1"), past.put("a-b", "x", "1"), past.put("a", "b", "1"),
		past.put("a", "x", "2"), past.put("b", "y", "1"), past.remove("b", "x"))
	if s, err = h.Source().Snapshot(patience(t)); err != nil {
		t.Fatal(err)
	}
	if s.Revision < past.revision {
		t.Errorf("its revision is %s, want at least %s", s.Revision, past.revision)
	}
	if s.Type != h.Type() {
		t.Errorf("its type is %v, want %v", s.Type, h.Type())
	}
	if diff := same(s.Objects, past.model.Content()); diff != "" {
		t.Error(diff)
	}
}

func watchTellsAll(t *testing.T, h SourceHarness) {
	r := watchAfter(t, h.Source(), h.Revision())
	past := newHistory(h.Type(), h.Revision())
	var events []stream.Event
	for i := range 500 {
		e := past.mixed(i)
		h.Change(e)
		events = append(events, e)
		if i%50 == 0 {
			r.until(past.revision)
		}
	}
	r.until(past.revision)
	r.want(events)
}

func watchResumes(t *testing.T, h SourceHarness) {
	past := newHistory(h.Type(), h.Revision())
	var events []stream.Event
	for i := range 40 {
		events = append(events, past.mixed(i))
	}
	h.Change(events...)
	for _, skip := range []int{1, 20, 39} {
		// After an event, and between two: the revision of a change of another resource.
		for _, beyond := range []edge.Revision{0, 1} {
			r := watchAfter(t, h.Source(), events[skip-1].Object.Revision+beyond)
			r.until(past.revision)
			r.want(events[skip:])
		}
	}
}

func watchFuture(t *testing.T, h SourceHarness) {
	past := newHistory(h.Type(), h.Revision())
	events := []stream.Event{
		past.put("a", "1", "1"), past.put("a", "2", "1"), past.put("a", "3", "1"), past.put("a", "4", "1"),
	}
	r := watchAfter(t, h.Source(), events[1].Object.Revision)
	read := make(chan error, 1)
	go func() { read <- r.next(patience(t)) }()
	h.Change(events[:2]...) // not what it waits for
	h.Change(events[2:]...)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	r.until(past.revision)
	r.want(events[2:])
}

func watchZero(t *testing.T, h SourceHarness) {
	w, err := h.Source().Watch(patience(t), 0)
	if err == nil {
		_, err = w.Next(patience(t))
		w.Close()
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("watch after nothing: %v, want an error at once", err)
	}
}

// expired says whether a watch is refused with ErrExpired, at once or at the first Next.
func expired(ctx context.Context, s stream.Source, after edge.Revision) error {
	w, err := s.Watch(ctx, after)
	if err == nil {
		_, err = w.Next(ctx)
		w.Close()
	}
	if !errors.Is(err, stream.ErrExpired) {
		return fmt.Errorf("watch after %s: %w, want ErrExpired", after, err)
	}
	return nil
}

func watchExpires(t *testing.T, h SourceHarness) {
	past := newHistory(h.Type(), h.Revision())
	var events []stream.Event
	change := func() {
		events = append(events, past.mixed(len(events)))
		h.Change(events[len(events)-1])
	}
	for range 20 {
		change()
	}
	h.Compact(events[9].Object.Revision, change)
	for _, i := range []int{0, 5, 8} {
		if err := expired(patience(t), h.Source(), events[i].Object.Revision); err != nil {
			t.Error(err)
		}
	}
	r := watchAfter(t, h.Source(), events[9].Object.Revision)
	r.until(past.revision)
	r.want(events[10:])
	s, err := h.Source().Snapshot(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := same(s.Objects, past.model.Content()); diff != "" {
		t.Error("afterwards: ", diff)
	}
}

func watchersIndependent(t *testing.T, h SourceHarness) {
	past := newHistory(h.Type(), h.Revision())
	slow := watchAfter(t, h.Source(), h.Revision())
	quick := watchAfter(t, h.Source(), h.Revision())
	gone := watchAfter(t, h.Source(), h.Revision())
	var events []stream.Event
	for i := range 100 {
		e := past.mixed(i)
		h.Change(e)
		events = append(events, e)
		quick.until(past.revision)
		if i == 50 {
			gone.until(past.revision)
			_ = gone.watch.Close()
		}
	}
	slow.until(past.revision)
	quick.want(events)
	slow.want(events)
}

// noticed is a context that tells when somebody begins to wait for its end.
type noticed struct {
	context.Context
	once   sync.Once
	notice func()
}

func (n *noticed) Done() <-chan struct{} {
	n.once.Do(n.notice)
	return n.Context.Done()
}

func contextEndsNext(t *testing.T, h SourceHarness) {
	r := watchAfter(t, h.Source(), h.Revision())
	cause := errors.New("the cause")
	life, cancel := context.WithCancelCause(patience(t))
	ctx := &noticed{Context: life, notice: func() { go cancel(cause) }} // while Next waits, not before
	read := make(chan error, 1)
	go func() {
		for { // a bookmark may come first
			if _, err := r.watch.Next(ctx); err != nil {
				read <- err
				return
			}
		}
	}()
	if err := <-read; !errors.Is(err, cause) {
		t.Errorf("Next: %v, want the cause of its context", err)
	}
	past := newHistory(h.Type(), h.Revision())
	h.Change(past.put("a", "b", "c"))
	if events, err := r.watch.Next(patience(t)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next after an error: %v, %v; want the watch to be over", events, err)
	}
}

func contextOfWatch(t *testing.T, h SourceHarness) {
	ctx, cancel := context.WithCancel(t.Context())
	after := h.Revision()
	w, err := h.Source().Watch(ctx, after)
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := &reader{t: t, watch: w, last: after}
	past := newHistory(h.Type(), after)
	events := []stream.Event{past.put("a", "b", "c")}
	h.Change(events...)
	r.until(past.revision)
	r.want(events)
}

func closeTwice(t *testing.T, h SourceHarness) {
	r := watchAfter(t, h.Source(), h.Revision())
	past := newHistory(h.Type(), h.Revision())
	h.Change(past.put("a", "b", "c"))
	r.until(past.revision)
	_ = r.watch.Close()
	_ = r.watch.Close()
	h.Change(past.put("a", "b", "d"))
	if events, err := r.watch.Next(patience(t)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next after Close: %v, %v; want an error at once", events, err)
	}
}

func closeDuringNext(t *testing.T, h SourceHarness) {
	r := watchAfter(t, h.Source(), h.Revision())
	ctx := &noticed{Context: patience(t), notice: func() { go r.watch.Close() }}
	for {
		_, err := r.watch.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("Next did not notice Close")
		}
		if err != nil {
			return
		}
	}
}

func eventsKeepBytes(t *testing.T, h SourceHarness) {
	r := watchAfter(t, h.Source(), h.Revision())
	past := newHistory(h.Type(), h.Revision())
	var copies []string
	for i := range 200 {
		e := past.put("a", fmt.Sprint("o", i%5), fmt.Sprint("content ", i))
		copies = append(copies, string(e.Object.Raw))
		h.Change(e)
		if i%10 == 0 {
			r.until(past.revision)
		}
	}
	r.until(past.revision)
	for i, e := range r.told {
		if string(e.Object.Raw) != copies[i] {
			t.Fatalf("event %d changed after it was told: %q, was %q", i, e.Object.Raw, copies[i])
		}
	}
}

// missesNothing lets several readers begin at any moment of a long series of changes; each must end with what there is.
func missesNothing(t *testing.T, h SourceHarness) {
	const changes, readers = 600, 4
	past := newHistory(h.Type(), h.Revision())
	var events []stream.Event
	states := map[edge.Revision][]stream.Object{past.revision: nil}
	for i := range changes {
		events = append(events, past.mixed(i))
		states[past.revision] = past.model.Content()
	}
	// at is the state at a revision, which may be that of another resource's change.
	at := func(revision edge.Revision) []stream.Object {
		i, _ := slices.BinarySearchFunc(events, revision+1, func(e stream.Event, r edge.Revision) int {
			return int(int64(e.Object.Revision) - int64(r))
		})
		if i == 0 {
			return nil
		}
		return states[events[i-1].Object.Revision]
	}
	ctx := patience(t)
	var wait sync.WaitGroup
	for range readers {
		wait.Go(func() {
			for again := true; again; {
				s, err := h.Source().Snapshot(ctx)
				if err != nil {
					t.Errorf("snapshot: %v", err)
					return
				}
				if diff := same(s.Objects, at(s.Revision)); diff != "" {
					t.Errorf("snapshot of revision %s: %s", s.Revision, diff)
					return
				}
				again = s.Revision < past.revision // one more round, for a reader that began late
				if err := follow(ctx, h.Source(), s, past.revision, at); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, e := range events {
		h.Change(e)
	}
	wait.Wait()
}

func follow(
	ctx context.Context, source stream.Source, s stream.Snapshot, end edge.Revision, at func(edge.Revision) []stream.Object,
) error {
	w, err := source.Watch(ctx, s.Revision)
	if err != nil {
		return fmt.Errorf("watch after %s: %w", s.Revision, err)
	}
	defer w.Close()
	model := Model{}
	for _, o := range s.Objects {
		model[o.Key] = o
	}
	r := &reader{watch: w, last: s.Revision}
	for r.last < end {
		if err := r.next(ctx); err != nil {
			return err
		}
		for _, e := range r.told {
			model.Apply(e)
		}
		r.told = r.told[:0]
		if diff := same(model.Content(), at(r.last)); diff != "" {
			return fmt.Errorf("after snapshot %s and its watch up to %s: %s", s.Revision, r.last, diff)
		}
	}
	return nil
}
