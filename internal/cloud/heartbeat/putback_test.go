package heartbeat

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

func TestPutBackTo(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 1234, time.UTC)
	for _, test := range []struct {
		what  string
		f     Finding
		ahead time.Duration
		want  bool
	}{
		{"a silent node's, from years ahead", Finding{Verdict: Silent}, 73 * 365 * 24 * time.Hour, true},
		{"a silent node's, from a clock that is off", Finding{Verdict: Silent}, 5 * time.Minute, false},
		{"a silent node's, from before", Finding{Verdict: Silent}, -time.Hour, false},
		{"a deleted one", Finding{Verdict: Silent, Gone: true}, time.Hour, false},
		{"a living node's", Finding{Verdict: Direct}, time.Hour, false},
		{"a delegated node's", Finding{Verdict: Delegated}, time.Hour, false},
		{"one that was just found", Finding{Verdict: Unobserved}, time.Hour, false},
	} {
		to, got := putBackTo(test.f, now.Add(test.ahead), now)
		if got != test.want || to != now.Truncate(time.Microsecond) {
			t.Errorf("%s: %t, to %v; want %t", test.what, got, to, test.want)
		}
	}
}

// TestPoisonedStampOfADeadNode: it is put back once the node is silent, which is no heartbeat, also for a controller that
// begins just then. The node's next one is.
func TestPoisonedStampOfADeadNode(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		w.createNode(aNode(false, none, ""))
		w.renew("n1", false)
		w.pass(10 * time.Second)
		w.renew("n1", false)
		w.pass(10 * time.Second)
		w.editLease("n1", func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = &metav1.MicroTime{Time: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
			annotate(l, true)
		})
		w.pass(39 * time.Second)
		if said := w.said(); slices.Contains(said, "lease") {
			t.Errorf("put back before the node is silent: %v", said)
		}
		w.pass(2 * time.Second)
		if said := w.said(); !slices.Contains(said, "lease") || !slices.Contains(said, "event Warning RenewTimePutBack") {
			t.Errorf("not put back: %v", said)
		}
		if ahead := w.leases["n1"].Spec.RenewTime.Sub(w.clock.Now()); ahead > 0 {
			t.Errorf("the stamp is %v ahead", ahead)
		}
		if restart {
			w.start()
			w.pass(testSilence)
			w.said()
		}
		w.pass(5 * time.Minute)
		if f, _ := w.policy.sightings.Judge("n1"); f.Verdict != Silent || len(w.said()) > 0 {
			t.Errorf("restart %t: what we wrote counts as %v, and %v was written", restart, f.Verdict, w.said())
		}
		w.renew("n1", true)
		w.leases["n1"].Annotations[edge.AnnotationPutBack] = "2026-01-01T00:00:00.000000Z" // a forwarder keeps it
		w.pass(time.Second)
		if f, _ := w.policy.sightings.Judge("n1"); f.Verdict != Delegated {
			t.Errorf("restart %t: the next heartbeat counts as %v", restart, f.Verdict)
		}
	}
}
