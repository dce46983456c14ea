package replica_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// world is the dumb truth: every event that ever happened, and nothing clever.
type world struct {
	revision edge.Revision
	now      map[stream.Key]stream.Object
	events   []stream.Event
}

func (m *world) step(random *rand.Rand) stream.Event {
	m.revision += edge.Revision(1 + random.IntN(3))
	k := stream.Key{Namespace: fmt.Sprint("ns", random.IntN(3)), Name: fmt.Sprint("o", random.IntN(8))}
	e := stream.Event{Type: stream.Added, Object: object(k.Namespace, k.Name, m.revision, fmt.Sprint(m.revision))}
	_, there := m.now[k]
	switch {
	case random.IntN(10) == 0:
		e = stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: m.revision}}
		return e
	case there && random.IntN(3) == 0:
		e.Type = stream.Deleted
		delete(m.now, k)
	case there:
		e.Type = stream.Modified
		m.now[k] = e.Object
	default:
		m.now[k] = e.Object
	}
	m.events = append(m.events, e)
	return e
}

func (m *world) snapshot() stream.Snapshot {
	return snapshot(m.revision, slices.Collect(maps.Values(m.now))...) // in no order
}

// after is all events after a revision, up to one.
func (m *world) between(after, upTo edge.Revision) []stream.Event {
	var between []stream.Event
	for _, e := range m.events {
		if e.Object.Revision > after && e.Object.Revision <= upTo {
			between = append(between, e)
		}
	}
	return between
}

// follower is a client that keeps what it was told, and checks it against the world.
type follower struct {
	watch stream.Watch
	began edge.Revision
	told  []stream.Event
	upTo  edge.Revision
}

func (f *follower) follow(m *world, events []stream.Event) error {
	for _, e := range events {
		if e.Object.Revision < f.upTo || (e.Type != stream.Bookmark && e.Object.Revision == f.upTo) {
			return fmt.Errorf("told %d after %d", e.Object.Revision, f.upTo)
		}
		f.upTo = e.Object.Revision
		if e.Type != stream.Bookmark {
			f.told = append(f.told, e)
		}
	}
	want := m.between(f.began, f.upTo)
	if len(want) != len(f.told) {
		return fmt.Errorf("from %d to %d: %d events told, %d happened", f.began, f.upTo, len(f.told), len(want))
	}
	for i, e := range want {
		got := f.told[i]
		if got.Type != e.Type || got.Object.Revision != e.Object.Revision || &got.Object.Raw[0] != &e.Object.Raw[0] {
			return fmt.Errorf("from %d: told %v %v at %d, it was %v %v at %d",
				f.began, got.Type, got.Object.Key, got.Object.Revision, e.Type, e.Object.Key, e.Object.Revision)
		}
	}
	return nil
}

// TestModel changes a world while a replica is fed from it, in batches, with repetitions and gaps, and followers come, read and
// leave. Whatever they are told must be what happened, without a gap; they may be told to list again.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			r := newReplica(t, replica.Config{HistoryEvents: 1 + random.IntN(60), HistoryBytes: 2000 + random.IntN(20000)})
			m := &world{revision: 1, now: map[stream.Key]stream.Object{}}
			replace(t, r, m.snapshot())
			var followers []*follower
			var pending []stream.Event
			expired, told := 0, 0
			for range 600 {
				switch pick := random.IntN(20); {
				case pick < 10:
					pending = append(pending, m.step(random))
				case pick < 13: // a batch, part of which may have been told before
					apply(t, r, pending...)
					if random.IntN(2) == 0 {
						pending = pending[random.IntN(len(pending)+1):]
					}
				case pick == 13 && random.IntN(4) == 0: // the source was away
					replace(t, r, m.snapshot())
					pending = nil
				case pick == 14 && m.revision > 3: // somebody watches, perhaps from the future
					after := m.revision - min(m.revision-1, edge.Revision(random.IntN(40))) + edge.Revision(random.IntN(10))
					w, err := r.Watch(t.Context(), after)
					if errors.Is(err, stream.ErrExpired) {
						expired++
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					followers = append(followers, &follower{watch: w, began: after, upTo: after})
				case len(followers) > 0:
					i := random.IntN(len(followers))
					f := followers[i]
					if f.upTo >= r.Position() {
						continue // there is nothing to read
					}
					events, err := f.watch.Next(t.Context())
					if errors.Is(err, stream.ErrExpired) {
						expired++
						_ = f.watch.Close()
						followers = slices.Delete(followers, i, i+1)
						continue
					}
					if err == nil {
						err = f.follow(m, events)
					}
					if err != nil {
						t.Fatal(err)
					}
					told += len(events)
				}
				if r.Position() == m.revision {
					compare(t, r, m)
				}
			}
			if told == 0 || expired == 0 {
				t.Errorf("%d events told, %d watches expired: this run tests nothing", told, expired)
			}
		})
	}
}

func compare(t *testing.T, r *replica.Replica, m *world) {
	t.Helper()
	s, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Objects) != len(m.now) {
		t.Fatalf("%d objects, want %d", len(s.Objects), len(m.now))
	}
	size := 0
	for i, o := range s.Objects {
		if want := m.now[o.Key]; want.Revision != o.Revision {
			t.Fatalf("%v is at %d, want %d", o.Key, o.Revision, want.Revision)
		}
		if i > 0 && s.Objects[i-1].Key.Compare(o.Key) >= 0 {
			t.Fatalf("%v comes before %v", s.Objects[i-1].Key, o.Key)
		}
		size += len(o.Raw)
	}
	if got := r.Stats(); got.ObjectBytes != size || got.Objects != len(m.now) {
		t.Fatalf("stats %+v, want %d objects of %d bytes", got, len(m.now), size)
	}
}

// TestSnapshotThenWatch runs readers that list and watch while a writer writes. List and events together must give the final
// content.
func TestSnapshotThenWatch(t *testing.T) {
	r := newReplica(t, replica.Config{})
	m := &world{revision: 1, now: map[stream.Key]stream.Object{}}
	replace(t, r, m.snapshot())
	random := rand.New(rand.NewPCG(7, 7))
	var batches [][]stream.Event
	for range 300 {
		var batch []stream.Event
		for range 1 + random.IntN(8) {
			batch = append(batch, m.step(random))
		}
		batches = append(batches, batch)
	}
	end := m.revision

	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			s, err := r.Snapshot(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			w, err := r.Watch(t.Context(), s.Revision)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = w.Close() }()
			now := map[stream.Key]edge.Revision{}
			for _, o := range s.Objects {
				now[o.Key] = o.Revision
			}
			for last := s.Revision; last < end; {
				events, err := w.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range events {
					last = e.Object.Revision
					switch e.Type {
					case stream.Deleted:
						delete(now, e.Object.Key)
					case stream.Added, stream.Modified:
						now[e.Object.Key] = e.Object.Revision
					}
				}
			}
			if len(now) != len(m.now) {
				t.Errorf("%d objects in the end, want %d", len(now), len(m.now))
			}
			for k, o := range m.now {
				if now[k] != o.Revision {
					t.Errorf("%v is at %d in the end, want %d", k, now[k], o.Revision)
				}
			}
		})
	}
	for _, batch := range batches {
		if err := r.Apply(t.Context(), batch); err != nil {
			t.Error(err)
		}
	}
	readers.Wait()
}
