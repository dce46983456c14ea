package replica_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

var (
	slicesResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	typ            = streamtest.EndpointSlices
)

func newReplica(t testing.TB, c replica.Config) *replica.Replica {
	t.Helper()
	if c.Resource.Resource == "" {
		c.Resource = slicesResource
	}
	r := replica.New(c)
	t.Cleanup(r.Close)
	return r
}

func object(namespace, name string, revision edge.Revision, content string) stream.Object {
	return streamtest.Object(typ, namespace, name, revision, content)
}

func snapshot(revision edge.Revision, objects ...stream.Object) stream.Snapshot {
	return stream.Snapshot{Type: typ, Revision: revision, Objects: objects}
}

func event(et stream.EventType, o stream.Object) stream.Event {
	return stream.Event{Type: et, Object: o}
}

func replace(t testing.TB, r *replica.Replica, s stream.Snapshot) {
	t.Helper()
	if err := r.Replace(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func apply(t testing.TB, r *replica.Replica, events ...stream.Event) {
	t.Helper()
	if err := r.Apply(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

type harness struct {
	t *testing.T
	r *replica.Replica
	e stream.Type
}

func (h harness) Source() stream.Source         { return h.r }
func (h harness) Sink() stream.Sink             { return h.r }
func (h harness) Type() stream.Type             { return h.e }
func (h harness) Change(events ...stream.Event) { apply(h.t, h.r, events...) }
func (h harness) Revision() edge.Revision       { return h.r.Position() }

func (h harness) Content() []stream.Object {
	s, err := h.r.Snapshot(h.t.Context())
	if err != nil && !errors.Is(err, stream.ErrNotReady) {
		h.t.Fatal(err)
	}
	return s.Objects
}

// Compact lets changes push the older ones out of the history.
func (h harness) Compact(upTo edge.Revision, change func()) {
	for range conformanceHistory {
		w, err := h.r.Watch(h.t.Context(), upTo-1)
		if errors.Is(err, stream.ErrExpired) {
			return
		}
		if err != nil {
			h.t.Fatal(err)
		}
		_ = w.Close()
		change()
	}
	h.t.Fatalf("after %d more changes a replica that keeps as many knows what was before %s", conformanceHistory, upTo)
}

// conformanceHistory is more than any test of the suite needs to be known.
const conformanceHistory = 1000

func TestSource(t *testing.T) {
	streamtest.Sources(t, func(t *testing.T) streamtest.SourceHarness {
		r := newReplica(t, replica.Config{HistoryEvents: conformanceHistory})
		replace(t, r, snapshot(100))
		return harness{t, r, typ}
	})
}

func TestSink(t *testing.T) {
	for _, e := range []stream.Type{streamtest.EndpointSlices, streamtest.Widgets} {
		t.Run(e.Kind, func(t *testing.T) {
			streamtest.Sinks(t, func(t *testing.T) streamtest.SinkHarness {
				return harness{t, newReplica(t, replica.Config{}), e}
			})
		})
	}
}

func TestIncomplete(t *testing.T) {
	r := newReplica(t, replica.Config{})
	if _, err := r.Snapshot(t.Context()); !errors.Is(err, stream.ErrNotReady) {
		t.Errorf("Snapshot: %v, want ErrNotReady", err)
	}
	if _, err := r.Watch(t.Context(), 1); !errors.Is(err, stream.ErrNotReady) {
		t.Errorf("Watch: %v, want ErrNotReady", err)
	}
	changes := []stream.Event{event(stream.Added, object("a", "x", 1, ""))}
	if err := r.Apply(t.Context(), changes); !errors.Is(err, stream.ErrNotReady) {
		t.Errorf("Apply: %v, want ErrNotReady", err)
	}
	if r.Complete().Get() || r.Position() != 0 || r.Type() != (stream.Type{}) {
		t.Errorf("complete %v, position %v, type %v: want nothing", r.Complete().Get(), r.Position(), r.Type())
	}
	replace(t, r, snapshot(7))
	if !r.Complete().Get() || r.Position() != 7 || r.Type() != typ {
		t.Errorf("complete %v, position %v, type %v after a snapshot", r.Complete().Get(), r.Position(), r.Type())
	}
}

func TestChangesAreTold(t *testing.T) {
	told := 0
	r := newReplica(t, replica.Config{Changed: func() { told++ }})
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"a snapshot", func() { replace(t, r, snapshot(10, object("a", "x", 5, ""))) }, 1},
		{"an event", func() { apply(t, r, event(stream.Modified, object("a", "x", 11, "new"))) }, 1},
		{"it again", func() { apply(t, r, event(stream.Modified, object("a", "x", 11, "new"))) }, 0},
		{"a bookmark", func() { apply(t, r, event(stream.Bookmark, object("", "", 12, ""))) }, 1},
		{"a reset", r.Reset, 1},
	} {
		told = 0
		if step.do(); told != step.want {
			t.Errorf("%s: told %d times, want %d", step.what, told, step.want)
		}
	}
}

func TestRefusesWhatCannotBeRight(t *testing.T) {
	x, y := object("a", "x", 5, ""), object("a", "y", 6, "")
	r := newReplica(t, replica.Config{})
	replace(t, r, snapshot(10, x, y))
	for _, test := range []struct {
		name string
		s    stream.Snapshot
		want error
	}{
		{"no revision", snapshot(0), replica.ErrDisorder},
		{"older", snapshot(9, x, y), replica.ErrOlder},
		{"twice", snapshot(11, x, x), replica.ErrDisorder},
		{"newer than the list", snapshot(11, object("a", "x", 12, "")), replica.ErrDisorder},
		{"no name", snapshot(11, object("a", "", 5, "")), replica.ErrDisorder},
		{"no encoding", stream.Snapshot{Revision: 11}, replica.ErrDisorder},
	} {
		if err := r.Replace(t.Context(), test.s); !errors.Is(err, test.want) {
			t.Errorf("Replace %s: %v, want %v", test.name, err, test.want)
		}
	}
	changed := func(name string, revision edge.Revision) stream.Event {
		return event(stream.Modified, object("a", name, revision, ""))
	}
	for _, test := range []struct {
		name   string
		events []stream.Event
	}{
		{"descending", []stream.Event{changed("x", 12), changed("y", 11)}},
		{"twice", []stream.Event{changed("x", 12), changed("y", 12)}},
		{"bookmark", []stream.Event{changed("x", 12), event(stream.Bookmark, stream.Object{Revision: 11})}},
		{"no name", []stream.Event{changed("", 12)}},
		{"no revision", []stream.Event{changed("x", 0)}},
		{"no type", []stream.Event{event(99, object("a", "x", 12, ""))}},
	} {
		if err := r.Apply(t.Context(), test.events); !errors.Is(err, replica.ErrDisorder) {
			t.Errorf("Apply %s: %v, want ErrDisorder", test.name, err)
		}
	}
	if r.Position() != 10 {
		t.Errorf("position is %v after nothing but refusals, want 10", r.Position())
	}
	if o, ok := r.Get(x.Key); !ok || o.Revision != 5 {
		t.Errorf("x is %v, %v", o, ok)
	}
}

func TestTellsAStoryThatFitsItself(t *testing.T) {
	r := newReplica(t, replica.Config{})
	replace(t, r, snapshot(10, object("a", "x", 5, "")))
	w := watch(t, r, 10)
	apply(t, r,
		event(stream.Added, object("a", "x", 11, "")),    // is there already
		event(stream.Modified, object("a", "y", 12, "")), // is not
		event(stream.Deleted, object("a", "z", 13, "")))  // is not
	var got []stream.EventType
	for _, e := range next(t, w) {
		got = append(got, e.Type)
	}
	if want := []stream.EventType{stream.Modified, stream.Added, stream.Bookmark}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if s := r.Stats(); s.Corrected != 3 || s.Position != 13 {
		t.Errorf("stats %+v, want 3 corrected and position 13", s)
	}
}

func watch(t testing.TB, r *replica.Replica, after edge.Revision) stream.Watch {
	t.Helper()
	w, err := r.Watch(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// next returns what is there; it must be something.
func next(t testing.TB, w stream.Watch) []stream.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	defer cancel()
	events, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(events)
}

// nothing checks that there is nothing to tell, and ends the watch.
func nothing(t testing.TB, w stream.Watch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if events, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("told %v, %v: want nothing", events, err)
	}
}

func nextErr(t testing.TB, w stream.Watch) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	defer cancel()
	events, err := w.Next(ctx)
	if err == nil {
		t.Fatalf("told %v, want an error", events)
	}
	return err
}

func TestReplaceAndWatchers(t *testing.T) {
	x := object("a", "x", 5, "")
	begin := func(t *testing.T) *replica.Replica {
		r := newReplica(t, replica.Config{})
		replace(t, r, snapshot(10, x))
		apply(t, r, event(stream.Added, object("a", "y", 20, "")))
		return r
	}
	t.Run("behind", func(t *testing.T) {
		r := begin(t)
		w := watch(t, r, 10)
		replace(t, r, snapshot(30, x))
		if err := nextErr(t, w); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("%v, want ErrExpired", err)
		}
		if _, err := r.Watch(t.Context(), 29); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("watch after 29: %v, want ErrExpired", err)
		}
	})
	t.Run("at it, waiting", func(t *testing.T) {
		r := begin(t)
		w := watch(t, r, 20)
		replace(t, r, snapshot(20, x, object("a", "y", 20, "")))
		apply(t, r, event(stream.Modified, object("a", "x", 21, "")))
		if got := next(t, w); len(got) != 1 || got[0].Object.Revision != 21 {
			t.Errorf("told %v, want the event at 21", got)
		}
	})
	t.Run("ahead", func(t *testing.T) {
		r := begin(t)
		w := watch(t, r, 40)
		replace(t, r, snapshot(30, x))
		apply(t, r, event(stream.Modified, object("a", "x", 35, "")), event(stream.Modified, object("a", "x", 41, "")))
		if got := next(t, w); len(got) != 1 || got[0].Object.Revision != 41 {
			t.Errorf("told %v, want only the event at 41", got)
		}
	})
	t.Run("same revision, other content", func(t *testing.T) {
		r := begin(t)
		w := watch(t, r, 20)
		replace(t, r, snapshot(20, x))
		if err := nextErr(t, w); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("%v, want ErrExpired: one of the two contents was wrong", err)
		}
	})
	t.Run("other encoding", func(t *testing.T) {
		r := begin(t)
		w := watch(t, r, 30)
		replace(t, r, stream.Snapshot{Type: streamtest.Widgets, Revision: 30})
		if err := nextErr(t, w); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("%v, want ErrExpired", err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		r := begin(t)
		w, ahead := watch(t, r, 20), watch(t, r, 50)
		r.Reset()
		if r.Complete().Get() {
			t.Error("complete after Reset")
		}
		if err := nextErr(t, w); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("%v, want ErrExpired", err)
		}
		replace(t, r, snapshot(3))
		if err := nextErr(t, ahead); !errors.Is(err, stream.ErrExpired) {
			t.Errorf("%v, want ErrExpired", err)
		}
	})
	t.Run("close", func(t *testing.T) {
		r := begin(t)
		w := watch(t, r, 20)
		r.Close()
		if err := nextErr(t, w); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want io.EOF", err)
		}
		if err := r.Replace(t.Context(), snapshot(50)); !errors.Is(err, replica.ErrClosed) {
			t.Errorf("Replace: %v, want ErrClosed", err)
		}
		if err := r.Apply(t.Context(), nil); !errors.Is(err, replica.ErrClosed) {
			t.Errorf("Apply: %v, want ErrClosed", err)
		}
	})
}

// A cloud that was restored from a backup counts from where the backup was.
func TestALaterHistoryReplacesWhateverThereIs(t *testing.T) {
	at := func(h edge.History, revision edge.Revision, objects ...stream.Object) stream.Snapshot {
		s := snapshot(revision, objects...)
		s.History = h
		return s
	}
	x := object("a", "x", 5, "")
	for name, revision := range map[string]edge.Revision{"earlier": 7, "the same": 20, "later": 90} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, replica.Config{})
			replace(t, r, at(1, 20, x))
			behind, level := watch(t, r, 20), watch(t, r, 90)
			replace(t, r, at(2, revision, x))
			for _, w := range []stream.Watch{behind, level} {
				if err := nextErr(t, w); !errors.Is(err, stream.ErrExpired) {
					t.Errorf("%v, want ErrExpired", err)
				}
			}
			s, err := r.Snapshot(t.Context())
			if err != nil || s.History != 2 || r.History() != 2 || s.Revision != revision {
				t.Errorf("Snapshot() = %+v, %v", s, err)
			}
			if err := r.Replace(t.Context(), at(1, 1000, x)); !errors.Is(err, replica.ErrOlder) {
				t.Errorf("an earlier history: %v, want ErrOlder", err)
			}
			if err := r.Replace(t.Context(), at(2, revision-1, x)); !errors.Is(err, replica.ErrOlder) {
				t.Errorf("an earlier revision: %v, want ErrOlder", err)
			}
		})
	}
}

func TestReplaceKeepsBytesOfTheUnchanged(t *testing.T) {
	r := newReplica(t, replica.Config{})
	first, second := object("a", "x", 5, "same"), object("a", "x", 5, "same")
	replace(t, r, snapshot(10, first, object("a", "y", 6, "")))
	replace(t, r, snapshot(20, second, object("a", "y", 15, "")))
	if o, _ := r.Get(first.Key); &o.Raw[0] != &first.Raw[0] {
		t.Error("an unchanged object was kept twice")
	}
	if o, _ := r.Get(stream.Key{Namespace: "a", Name: "y"}); o.Revision != 15 {
		t.Errorf("the changed object is at %d, want 15", o.Revision)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	const most = 64 << 10
	r := newReplica(t, replica.Config{HistoryBytes: most, HistoryEvents: 100})
	replace(t, r, snapshot(1))
	big := string(make([]byte, 2000))
	revision := edge.Revision(1)
	for i := range 2000 {
		revision++
		o := object("a", string(rune('a'+i%7)), revision, big[:i])
		if i%5 == 0 {
			apply(t, r, event(stream.Deleted, o))
		} else {
			apply(t, r, event(stream.Modified, o))
		}
		if s := r.Stats(); s.HistoryBytes > most || s.HistoryEvents > 100 || s.HistoryBytes < 0 {
			t.Fatalf("after %d events: %+v", i, s)
		}
	}
	s := r.Stats()
	if s.HistoryEvents == 0 || s.Oldest == 1 {
		t.Errorf("%+v: want some events, and some forgotten", s)
	}
	if _, err := r.Watch(t.Context(), s.Oldest-1); !errors.Is(err, stream.ErrExpired) {
		t.Errorf("watch after what is forgotten: %v, want ErrExpired", err)
	}
	if got := next(t, watch(t, r, s.Oldest)); len(got) != s.HistoryEvents {
		t.Errorf("%d events are told, %d are held", len(got), s.HistoryEvents)
	}
	if s.ObjectBytes <= 0 || s.ObjectBytes > 7*4100 {
		t.Errorf("%d bytes of objects", s.ObjectBytes)
	}
}

func TestHistoryCountsWhatItAloneHolds(t *testing.T) {
	r := newReplica(t, replica.Config{})
	replace(t, r, snapshot(1))
	step := func(e stream.Event) int {
		before := r.Stats().HistoryBytes
		apply(t, r, e)
		return r.Stats().HistoryBytes - before
	}
	one, two := object("a", "x", 2, "one"), object("a", "x", 3, "longer")
	gone := object("a", "x", 4, "gone")
	empty := step(event(stream.Added, one)) // its bytes are the store's
	if got, want := step(event(stream.Modified, two)), empty+len(one.Raw); got != want {
		t.Errorf("a change holds %d bytes, want %d", got, want)
	}
	if got, want := step(event(stream.Deleted, gone)), empty+len(two.Raw)+len(gone.Raw); got != want {
		t.Errorf("a deletion holds %d bytes, want %d", got, want)
	}
}

func TestSlowWatcherFallsOut(t *testing.T) {
	r := newReplica(t, replica.Config{HistoryEvents: 10})
	replace(t, r, snapshot(1))
	slow, fast := watch(t, r, 1), watch(t, r, 1)
	for i := range edge.Revision(30) {
		apply(t, r, event(stream.Modified, object("a", "x", 2+i, "")))
		if got := next(t, fast); len(got) != 1 || got[0].Object.Revision != 2+i {
			t.Fatalf("told %v", got)
		}
	}
	if err := nextErr(t, slow); !errors.Is(err, stream.ErrExpired) {
		t.Errorf("%v, want ErrExpired", err)
	}
	if s := r.Stats(); s.Expired != 1 || s.Watchers != 2 {
		t.Errorf("stats %+v", s)
	}
	_ = slow.Close()
	_ = slow.Close()
	if s := r.Stats(); s.Watchers != 1 {
		t.Errorf("%d watchers, want 1", s.Watchers)
	}
}

func TestBookmarks(t *testing.T) {
	r := newReplica(t, replica.Config{})
	replace(t, r, snapshot(1))
	w := watch(t, r, 1)
	apply(t, r, event(stream.Bookmark, stream.Object{Revision: 50}))
	if got := next(t, w); len(got) != 1 || got[0].Type != stream.Bookmark || got[0].Object.Revision != 50 {
		t.Errorf("told %v, want a bookmark at 50", got)
	}
	apply(t, r, event(stream.Bookmark, stream.Object{Revision: 50}), event(stream.Bookmark, stream.Object{Revision: 50}))
	nothing(t, w)
	ahead := watch(t, r, 60)
	apply(t, r, event(stream.Added, object("a", "x", 55, "")), event(stream.Bookmark, stream.Object{Revision: 59}))
	nothing(t, watch(t, r, 60)) // it knows better than any bookmark so far
	apply(t, r, event(stream.Bookmark, stream.Object{Revision: 61}))
	if got := next(t, ahead); len(got) != 1 || got[0].Object.Revision != 61 {
		t.Errorf("told %v, want a bookmark at 61", got)
	}
}
