package replica_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

func of(history edge.History, s stream.Snapshot) stream.Snapshot {
	s.History = history
	return s
}

// TestReplaceByHistory: a restored cloud counts revisions anew. Its list is accepted at any revision, and no watch resumes from
// the history before.
func TestReplaceByHistory(t *testing.T) {
	for _, revision := range []edge.Revision{30, 100, 500} { // behind, equal, beyond
		r := newReplica(t, replica.Config{})
		replace(t, r, of(2, snapshot(90, object("a", "x", 50, "old"), object("a", "gone", 60, ""))))
		apply(t, r, event(stream.Added, object("a", "y", 100, "")))
		if r.History() != 2 {
			t.Errorf("history %v, want 2", r.History())
		}
		behind, at, ahead := watch(t, r, 95), watch(t, r, 100), watch(t, r, 600)
		if err := r.Replace(t.Context(), of(1, snapshot(700))); !errors.Is(err, replica.ErrOlder) || r.Position() != 100 {
			t.Errorf("an earlier history: %v", err)
		}
		if err := r.Replace(t.Context(), of(2, snapshot(99))); !errors.Is(err, replica.ErrOlder) {
			t.Errorf("an older state of the same history: %v", err)
		}
		// The same revision of the same object means nothing in another history.
		replace(t, r, of(3, snapshot(revision, object("a", "x", 30, "new"))))
		for name, w := range map[string]stream.Watch{"behind": behind, "at": at, "ahead": ahead} {
			if err := nextErr(t, w); !errors.Is(err, stream.ErrExpired) {
				t.Errorf("a watch %s: %v, want ErrExpired", name, err)
			}
		}
		s, w, err := r.Begin(t.Context())
		if err != nil || s.History != 3 || s.Revision != revision || len(s.Objects) != 1 || r.History() != 3 {
			t.Errorf("%+v %v", s, err)
		}
		w.Close()
		if !r.Complete().Get() {
			t.Error("it ceased to be complete")
		}
		if revision < 100 {
			if _, err := r.Watch(t.Context(), 80); !errors.Is(err, stream.ErrExpired) {
				t.Errorf("a resume at a revision of the history before: %v, want ErrExpired", err)
			}
		}
		watch(t, r, 600) // that can only be of this one
	}
}

// A hub that starts anew has what its replica knew of the history before: who resumes there is not left in silence.
func TestARestartKnowsOfTheHistoryBefore(t *testing.T) {
	r := newReplica(t, replica.Config{})
	replace(t, r, of(2, snapshot(90, object("a", "x", 50, "old"))))
	replace(t, r, of(3, snapshot(30, object("a", "x", 20, "new"))))
	kept, err := r.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r = newReplica(t, replica.Config{})
	replace(t, r, kept)
	if _, err := r.Watch(t.Context(), 80); !errors.Is(err, stream.ErrExpired) {
		t.Errorf("a resume at a revision of the history before: %v, want ErrExpired", err)
	}
	watch(t, r, 600) // that can only be of this one
}

func TestSameRevisionOfAnotherHistory(t *testing.T) {
	r := newReplica(t, replica.Config{})
	replace(t, r, of(1, snapshot(90, object("a", "x", 50, "old"))))
	replace(t, r, of(2, snapshot(90, object("a", "x", 50, "new"))))
	if o, _ := r.Get(stream.Key{Namespace: "a", Name: "x"}); string(o.Raw) != string(object("a", "x", 50, "new").Raw) {
		t.Error("the object of the history before was kept")
	}
}

// A list that is paged through is not continued in another history, though its revision comes again.
func TestPagesAreOfOneHistory(t *testing.T) {
	r := filled(t)
	s := serve(t, newHandler(t, replica.HandlerConfig{Replica: r}))
	page := func(query string) (answer, string) {
		a := s.get(t, slicesPath+"?limit=1"+query, asJSON)
		if a.StatusCode != http.StatusOK {
			return a, ""
		}
		_, rest, err := stream.ReadList(strings.NewReader(string(a.body)), stream.JSON, 1<<20)
		if err != nil || rest == "" {
			t.Fatalf("%q %v", rest, err)
		}
		return a, rest
	}
	_, old := page("")
	again := snapshot(100, slice("a", "x", 10, 1, nil), slice("a", "z", 20, 1, nil), slice("b", "z", 20, 1, nil))
	replace(t, r, of(1, again))
	_, rest := page("") // kept beside the one before, which has the same revision
	apply(t, r, event(stream.Deleted, slice("a", "z", 101, 1, nil)))
	if a, _ := page("&continue=" + rest); !strings.Contains(string(a.body), `"z"`) {
		t.Errorf("the second page of this history: %s", a.body)
	}
	if a, _ := page("&continue=" + old); a.StatusCode != http.StatusGone {
		t.Errorf("the second page of the history before: %s", a.body)
	}
}
