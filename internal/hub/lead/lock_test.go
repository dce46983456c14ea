package lead

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/hubtest"
)

func newLock(server *hubtest.LeaseServer, name string) *lock {
	return &lock{
		leases: server.Client(name).Leases(edge.NamespaceSystem), board: newBoard(ends.Clock{}),
		identity: edge.NodeName(name), instance: name, fence: &fence{},
	}
}

func held(name string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: name, LeaseDurationSeconds: 4}
}

// TestTermIsNotContinuedOverAnothers checks that a leader that was away does not continue its old term with the Lease, even if
// the hub that had it meanwhile is gone too.
func TestTermIsNotContinuedOverAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(10)
		l := newLock(server, "n1")
		if err := l.Create(t.Context(), held("n1")); err != nil {
			t.Fatal(err)
		}
		server.Edit(edge.NamespaceSystem, edge.LeaseElection, func(lease *coordinationv1.Lease) {
			other, one := "n2", int32(1)
			lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = &other, &one
		})
		time.Sleep(time.Minute)
		if err := l.Update(t.Context(), held("n1")); err == nil {
			t.Fatal("a renewal went over another holder's")
		}
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Update(t.Context(), held("n1")); !errors.Is(err, errTermOver) {
			t.Errorf("Update = %v, want %v", err, errTermOver)
		}
		server.Remove(edge.NamespaceSystem, edge.LeaseElection)
		if err := l.Create(t.Context(), held("n1")); !errors.Is(err, errTermOver) {
			t.Errorf("Create = %v, want %v", err, errTermOver)
		}
		if err := l.release(t.Context(), ""); err != nil || server.Peek(edge.NamespaceSystem, edge.LeaseElection) != nil {
			t.Errorf("release = %v; want that it leaves others' Leases alone", err)
		}
	})
}

// TestReleasesWhatItMayHold: the winning write took effect, its answer was lost, and then the campaign ended.
func TestReleasesWhatItMayHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(10)
		l := newLock(server, "n1")
		server.After(func(context.Context, hubtest.LeaseCall) error { return errors.New("connection reset") })
		if err := l.Create(t.Context(), held("n1")); err == nil {
			t.Fatal("a lost answer counts as a win")
		}
		if !l.suspect {
			t.Error("what is known of the Lease is not doubted")
		}
		server.After(nil)
		if err := l.release(t.Context(), ""); err != nil || l.suspect {
			t.Fatal(err, l.suspect)
		}
		if h := holder(server.Peek(edge.NamespaceSystem, edge.LeaseElection)); h != "" {
			t.Errorf("%q holds the Lease that nobody leads with", h)
		}
	})
}

// TestAnswersWhenThereIsNews: the elector hears nothing that it knows already, until it may have to act.
func TestAnswersWhenThereIsNews(t *testing.T) {
	lease := func(revision, holder string) *coordinationv1.Lease {
		seconds := int32(4)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: edge.LeaseElection, UID: "a", ResourceVersion: revision},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
		}
	}
	tests := []struct {
		name        string
		first       string // who holds it at first
		happens     func(l *lock, end context.CancelFunc)
		after       time.Duration // happens
		least, most time.Duration // until the second answer
	}{
		{"nothing", "n2", func(*lock, context.CancelFunc) {}, 0, leaseDuration - pollMax, leaseDuration - pollMax},
		{"a renewal", "n2", func(l *lock, _ context.CancelFunc) { l.board.post(lease("2", "n2")) }, time.Second,
			time.Second, time.Second},
		{"a renewal at once", "n2", func(l *lock, _ context.CancelFunc) { l.board.post(lease("2", "n2")) }, 0, 0, 0},
		{"a release", "n2", func(l *lock, _ context.CancelFunc) { l.board.post(lease("2", "")) }, time.Second,
			time.Second, time.Second + retryPeriod},
		{"a release, and another is quicker", "n2", func(l *lock, _ context.CancelFunc) {
			l.board.post(lease("2", ""))
			l.board.post(lease("3", "n3")) // on a busy machine it comes after the release was seen
		}, time.Second, time.Second, time.Second + retryPeriod},
		{"the stream ends", "n2", func(l *lock, _ context.CancelFunc) { l.board.see(Sighting{}) }, time.Second, time.Second,
			time.Second},
		{"the campaign ends", "n2", func(_ *lock, end context.CancelFunc) { end() }, time.Second, time.Second, time.Second},
		{"nobody holds it", "", func(*lock, context.CancelFunc) {}, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLock(hubtest.NewLeaseServer(10), "n1")
				l.board.post(lease("1", tt.first))
				ctx, end := context.WithCancel(t.Context())
				defer end()
				began := time.Now()
				if _, _, err := l.Get(ctx); err != nil || time.Since(began) != 0 {
					t.Fatalf("the first answer comes after %s: %v", time.Since(began), err)
				}
				time.AfterFunc(tt.after, func() { tt.happens(l, end) })
				_, _, _ = l.Get(ctx)
				if took := time.Since(began); took < tt.least || took > tt.most {
					t.Errorf("the next answer comes after %s, want %s to %s", took, tt.least, tt.most)
				}
			})
		})
	}
}

// TestCountsFromWhatItsWatchSaw: a campaign that begins where a watch has seen the holder fall silent does not wait for it anew.
func TestCountsFromWhatItsWatchSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(10)
		if err := newLock(server, "n2").Create(t.Context(), held("n2")); err != nil {
			t.Fatal(err)
		}
		l := newLock(server, "n1")
		l.board.post(server.Peek(edge.NamespaceSystem, edge.LeaseElection))
		time.Sleep(leaseDuration - time.Millisecond)
		if r, _, err := l.Get(t.Context()); err != nil || r.HolderIdentity != "n2" {
			t.Errorf("before its time was up: %+v, %v", r, err)
		}
		time.Sleep(time.Millisecond)
		if r, _, err := l.Get(t.Context()); err != nil || r.HolderIdentity != "" {
			t.Errorf("after that: %+v, %v", r, err)
		}
		l.board.see(Sighting{})
		if r, _, err := l.Get(t.Context()); err != nil || r.HolderIdentity != "n2" {
			t.Errorf("nobody has watched: %+v, %v", r, err)
		}
	})
}

func TestBoardKeepsTheNewest(t *testing.T) {
	at := func(uid types.UID, revision string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: edge.LeaseElection, UID: uid, ResourceVersion: revision,
		}}
	}
	b := newBoard(ends.Clock{})
	b.post(at("a", "10"))
	b.post(at("a", "9"))
	b.see(Sighting{Known: true, Lease: at("a", "8")})
	if lease, _ := b.read(); lease.ResourceVersion != "10" {
		t.Errorf("revision %s is up, want 10", lease.ResourceVersion)
	}
	b.post(at("b", "3"))
	if lease, _ := b.read(); lease.UID != "b" {
		t.Error("a Lease of the coordinator's next life was taken for an old one")
	}
	b.post(at("a", "10"))
	b.see(Sighting{Known: true, Found: true})
	if lease, known := b.read(); lease != nil || !known {
		t.Errorf("after its deletion: %v, known=%v", lease, known)
	}
	_, _, changed := b.watch()
	b.see(Sighting{})
	select {
	case <-changed:
	default:
		t.Error("forgetting is not announced")
	}
}

// TestMissingLease: a coordinator that came back empty does not know whether somebody leads.
func TestMissingLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(10)
		l := newLock(server, "n1")
		began := time.Now()
		for {
			_, _, err := l.Get(t.Context())
			if apierrors.IsNotFound(err) {
				break
			}
			if !errors.Is(err, errVacant) || time.Since(began) > leaseDuration {
				t.Fatalf("Get after %s = %v", time.Since(began), err)
			}
			time.Sleep(retryPeriod)
		}
		if took := time.Since(began); took < leaseDuration {
			t.Errorf("made anew after %s, while a term may last %s", took, leaseDuration)
		}
		if err := l.Create(t.Context(), held("n1")); err != nil {
			t.Fatal(err)
		}
		// Nor may the hub that held it just now: others may have led since, in a life of the coordinator that it did not see.
		server.Remove(edge.NamespaceSystem, edge.LeaseElection)
		l.board.gone()
		if _, _, err := l.Get(t.Context()); !errors.Is(err, errVacant) {
			t.Errorf("the last holder is told %v", err)
		}
		// Once nothing has been known for a while, the time begins anew.
		time.Sleep(leaseDuration)
		l.board.see(Sighting{})
		if _, _, err := l.Get(t.Context()); !errors.Is(err, errVacant) {
			t.Errorf("a former holder is told %v", err)
		}
	})
}
