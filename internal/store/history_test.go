package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

func inHistory(h edge.History, s stream.Snapshot) stream.Snapshot {
	s.History = h
	return s
}

// A later history is taken whatever its revisions are, an earlier one never; and the disk keeps which one it is.
func TestHistories(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	replace(t, s, slicesID, snapshotOf(5, 10, 500))
	flush(t, s)
	restored := inHistory(1, snapshotOf(3, 10, 90))
	replace(t, s, slicesID, restored)
	flush(t, s)
	next := object("ns00", "slice-00000", 95, "changed")
	if err := s.Sink(slicesID).Apply(context.Background(), []stream.Event{{Type: stream.Modified, Object: next}}); err != nil {
		t.Fatal(err)
	}
	restored.Objects[0], restored.Revision = next, 95
	for range 2 {
		flush(t, s)
		holds(t, s, slicesID, restored)
		if at := onDisk(t, s, slicesID); at != (edge.Moment{History: 1, Revision: 95}) {
			t.Errorf("it is written up to %s", at)
		}
		for _, old := range []stream.Snapshot{
			snapshotOf(5, 10, 600), inHistory(1, snapshotOf(5, 10, 94)),
		} {
			if err := s.Sink(slicesID).Replace(context.Background(), old); !errors.Is(err, ErrOlder) {
				t.Errorf("revision %s of history %s: %v", old.Revision, old.History, err)
			}
		}
		_ = s.Close()
		s = opening(t, Config{Dir: dir}, nil)
	}
	s.Drop(slicesID)
	replace(t, s, slicesID, snapshotOf(5, 10, 600))
	flush(t, s)
	holds(t, s, slicesID, snapshotOf(5, 10, 600))
}

// An earlier history is refused also while nothing is sure of the collection but that it had come to a later one.
func TestEarlierHistoryAfterAFailure(t *testing.T) {
	var full bool
	s := opening(t, Config{Dir: t.TempDir()}, func(string) error {
		if full {
			return unix.ENOSPC
		}
		return nil
	})
	replace(t, s, slicesID, inHistory(2, snapshotOf(5, 10, 50)))
	flush(t, s)
	full = true
	replace(t, s, slicesID, inHistory(2, snapshotOf(5, 10, 60)))
	if err := s.Flush(context.Background()); err == nil {
		t.Fatal("a full disk was written")
	}
	full = false
	must(t, s.recover(context.Background()))
	if err := s.Sink(slicesID).Replace(context.Background(), snapshotOf(5, 10, 70)); !errors.Is(err, ErrOlder) {
		t.Fatal(err)
	}
	replace(t, s, slicesID, inHistory(2, snapshotOf(5, 10, 60)))
}

// What a Sink was given and the disk could not take is never followed by an older state that does not say so.
func TestBehind(t *testing.T) {
	var full bool
	s := opening(t, Config{Dir: t.TempDir()}, func(string) error {
		if full {
			return unix.ENOSPC
		}
		return nil
	})
	replace(t, s, slicesID, snapshotOf(5, 10, 500))
	flush(t, s)
	behind := func(what string) {
		t.Helper()
		if got, err := s.Load(slicesID); !errors.Is(err, ErrMiss) || !strings.Contains(err.Error(), "an older state") {
			t.Fatalf("%s: %d objects at %s, %v; want a miss that says why", what, len(got.Objects), got.Revision, err)
		}
		if at := onDisk(t, s, slicesID); at != (edge.Moment{History: 0, Revision: 500}) {
			t.Fatalf("%s: written up to %s", what, at)
		}
	}
	full = true
	replace(t, s, slicesID, snapshotOf(6, 10, 900))
	if onDisk(t, s, slicesID).Revision != 500 || s.Sink(slicesID).Position() != 900 {
		t.Fatal("what waits counts as written")
	}
	if err := s.Flush(context.Background()); err == nil {
		t.Fatal("a full disk was written")
	}
	behind("taken and lost")
	if err := s.Sink(slicesID).Replace(context.Background(), snapshotOf(7, 10, 950)); !errors.Is(err, ErrUnwritable) {
		t.Fatal(err)
	}
	behind("refused")
	full = false
	must(t, s.recover(context.Background()))
	behind("written again")
	replace(t, s, slicesID, snapshotOf(7, 10, 950))
	flush(t, s)
	holds(t, s, slicesID, snapshotOf(7, 10, 950))
	// Given by somebody who has believed the older state, it is what is known.
	full = true
	replace(t, s, slicesID, snapshotOf(8, 10, 960))
	_ = s.Flush(context.Background())
	full = false
	must(t, s.recover(context.Background()))
	replace(t, s, slicesID, snapshotOf(7, 10, 950))
	holds(t, s, slicesID, snapshotOf(7, 10, 950))
}

// What is known of the histories before is on the disk, through changes and restarts.
func TestWhatIsKnownOfEarlierHistories(t *testing.T) {
	dir := t.TempDir()
	s := opening(t, Config{Dir: dir}, nil)
	restored := inHistory(1, snapshotOf(3, 10, 90))
	restored.Before = 500
	replace(t, s, slicesID, restored)
	flush(t, s)
	o := object("ns00", "slice-00000", 91, "changed")
	must(t, s.Sink(slicesID).Apply(t.Context(), []stream.Event{{Type: stream.Modified, Object: o}}))
	restored.Revision, restored.Objects[0] = 91, o
	flush(t, s)
	must(t, s.Close())
	s = opening(t, Config{Dir: dir}, nil)
	holds(t, s, slicesID, restored)
}
