package streamtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Sinks tests a Sink. build is called once for each test; what it builds ends with that test's t.
func Sinks(t *testing.T, build func(t *testing.T) SinkHarness) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *sink)
	}{
		{"Empty", emptySink},
		{"Replace", replace},
		{"ReplaceWithNothing", replaceWithNothing},
		{"ReplaceOlderChangesNothing", replaceOlder},
		{"Apply", apply},
		{"ApplyAgain", applyAgain},
		{"DeleteWhatIsNot", deleteWhatIsNot},
		{"Bookmark", bookmarkMoves},
		{"ErrorLeavesPositionTrue", errorLeavesPositionTrue},
		{"RandomBatchesWithRepetitions", randomBatches},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := build(t)
			past := newHistory(h.Type(), 100)
			test.run(t, &sink{t: t, SinkHarness: h, past: past, states: map[edge.Revision][]stream.Object{0: nil}})
		})
	}
}

// sink is a Sink under test, and what it should hold at each revision.
type sink struct {
	SinkHarness
	t      *testing.T
	past   *history
	states map[edge.Revision][]stream.Object
}

// record remembers what there is at the history's revision.
func (s *sink) record(e stream.Event) stream.Event {
	s.states[s.past.revision] = s.past.model.Content()
	return e
}

func (s *sink) put(namespace, name, content string) stream.Event {
	return s.record(s.past.put(namespace, name, content))
}

func (s *sink) remove(namespace, name string) stream.Event {
	return s.record(s.past.remove(namespace, name))
}

func (s *sink) snapshot() stream.Snapshot {
	s.states[s.past.revision] = s.past.model.Content()
	return stream.Snapshot{Type: s.Type(), Revision: s.past.revision, Objects: s.past.model.Content()}
}

// replace and apply must succeed.
func (s *sink) replace(snapshot stream.Snapshot) {
	s.t.Helper()
	if err := s.Sink().Replace(patience(s.t), snapshot); err != nil {
		s.t.Fatalf("replace with revision %s: %v", snapshot.Revision, err)
	}
}

func (s *sink) apply(events ...stream.Event) {
	s.t.Helper()
	if err := s.Sink().Apply(patience(s.t), events); err != nil {
		s.t.Fatalf("apply %d events: %v", len(events), err)
	}
}

// at compares position and content.
func (s *sink) at(revision edge.Revision) {
	s.t.Helper()
	if p := s.Sink().Position(); p != revision {
		s.t.Fatalf("position %q, want %q", p, revision)
	}
	s.true()
}

// true compares the content with what it must be at the position, wherever that is.
func (s *sink) true() {
	s.t.Helper()
	p := s.Sink().Position()
	want, known := s.states[p]
	if !known {
		s.t.Fatalf("position %q, which never was", p)
	}
	if diff := same(s.Content(), want); diff != "" {
		s.t.Fatalf("at position %q: %s", p, diff)
	}
}

func emptySink(_ *testing.T, s *sink) {
	s.at(0)
	// Changes without what they change complete nothing, whether they are refused or ignored.
	_ = s.Sink().Apply(patience(s.t), []stream.Event{s.put("a", "b", "1")})
	if p := s.Sink().Position(); p != 0 {
		s.t.Fatalf("position %s after changes without a snapshot, want none", p)
	}
}

func replace(_ *testing.T, s *sink) {
	s.put("b", "x", "1")
	s.put("a", "x", "1")
	s.put("a-b", "y", "1")
	s.replace(s.snapshot())
	s.at(s.past.revision)
	s.put("a", "x", "2")
	s.remove("b", "x")
	s.put("c", "x", "1")
	s.replace(s.snapshot())
	s.at(s.past.revision)
	s.replace(s.snapshot()) // the same again
	s.at(s.past.revision)
	s.apply(s.put("c", "x", "2"))
	s.at(s.past.revision)
}

func replaceWithNothing(_ *testing.T, s *sink) {
	s.replace(s.snapshot())
	s.at(s.past.revision)
	s.apply(s.put("a", "b", "1"))
	s.at(s.past.revision)
}

// replaceOlder is a message that was on its way too long. Whether it is refused or ignored is up to the sink.
func replaceOlder(_ *testing.T, s *sink) {
	s.put("a", "b", "1")
	old := s.snapshot()
	s.replace(old)
	s.apply(s.put("a", "b", "2"), s.put("a", "c", "1"))
	_ = s.Sink().Replace(patience(s.t), old)
	s.at(s.past.revision)
}

func apply(_ *testing.T, s *sink) {
	s.put("a", "x", "1")
	s.put("b", "x", "1")
	s.replace(s.snapshot())
	s.apply(s.put("a", "y", "1"))
	s.at(s.past.revision)
	s.apply(s.put("a", "x", "2"))
	s.at(s.past.revision)
	s.apply(s.remove("b", "x"))
	s.at(s.past.revision)
	s.apply(s.put("b", "x", "3"), s.put("b", "x", "4"), s.remove("a", "x"), s.put("b", "z", "1"), s.remove("b", "z"))
	s.at(s.past.revision)
	s.apply()
	s.at(s.past.revision)
}

func applyAgain(_ *testing.T, s *sink) {
	s.put("a", "x", "1")
	s.replace(s.snapshot())
	first := s.put("a", "x", "2")
	second := s.put("a", "y", "1")
	third := s.remove("a", "y")
	s.apply(first, second, third)
	s.at(s.past.revision)
	s.apply(first)
	s.at(s.past.revision)
	s.apply(first, second, third, s.put("a", "z", "1")) // begins before the position, ends after it
	s.at(s.past.revision)
	s.apply(second)
	s.at(s.past.revision)
}

func deleteWhatIsNot(_ *testing.T, s *sink) {
	s.put("a", "x", "1")
	s.replace(s.snapshot())
	s.apply(s.remove("never", "was"))
	s.at(s.past.revision)
}

func bookmarkMoves(_ *testing.T, s *sink) {
	s.put("a", "x", "1")
	s.replace(s.snapshot())
	bookmark := func() stream.Event {
		s.past.revision++
		s.states[s.past.revision] = s.past.model.Content()
		return stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: s.past.revision}}
	}
	s.apply(bookmark())
	s.at(s.past.revision)
	late := bookmark()
	s.apply(s.put("a", "x", "2"))
	s.apply(late)
	s.at(s.past.revision)
	change := s.put("a", "y", "1")
	s.apply(change, bookmark())
	s.at(s.past.revision)
	s.apply(bookmark(), s.put("a", "y", "2"))
	s.at(s.past.revision)
}

func errorLeavesPositionTrue(_ *testing.T, s *sink) {
	s.put("a", "x", "1")
	s.replace(s.snapshot())
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var events []stream.Event
	for i := range 50 {
		events = append(events, s.put("a", fmt.Sprint("x", i%7), fmt.Sprint(i)))
	}
	if err := s.Sink().Apply(over, events); err == nil {
		s.at(s.past.revision) // it needed no waiting
	}
	s.true()
	s.apply(events...)
	s.at(s.past.revision)
	s.put("b", "x", "1")
	s.remove("a", "x1")
	if err := s.Sink().Replace(over, s.snapshot()); err == nil {
		s.at(s.past.revision)
	}
	s.true()
	s.replace(s.snapshot())
	s.at(s.past.revision)
}

// randomBatches delivers a long history in batches that overlap, repeat and begin early, with snapshots between.
func randomBatches(t *testing.T, s *sink) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, seed))
	s.replace(s.snapshot())
	var events []stream.Event
	for i := range 400 {
		events = append(events, s.record(s.past.mixed(i)))
	}
	for done := 0; done < len(events); {
		begin := max(0, done-random.IntN(8))
		end := min(len(events), done+random.IntN(10))
		if random.IntN(20) == 0 && end > done {
			r := events[end-1].Object.Revision
			s.replace(stream.Snapshot{Type: s.Type(), Revision: r, Objects: s.states[r]})
		} else {
			s.apply(events[begin:end]...)
		}
		done = end
		if done > 0 {
			s.at(events[done-1].Object.Revision)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
