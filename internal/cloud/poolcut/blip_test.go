package poolcut

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yurtcoordinator/internal/edge"
)

// report is one of the pool's leader: which nodes it hears at the coordinator.
func (w *world) report(leader string, reached ...edge.NodeName) {
	w.reportAs("yurt-coordinator-p1", leader, reached...)
}

// reportAs is one in the Lease of some slot.
func (w *world) reportAs(name, leader string, reached ...edge.NodeName) {
	is := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "kube-node-lease", UID: types.UID(name),
			Annotations: map[string]string{edge.AnnotationReachedNodes: edge.JoinNodes(reached)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader, RenewTime: &metav1.MicroTime{Time: w.clock.Now()}},
	}
	was, found := w.leases[name]
	w.leases[name] = is
	// The controller reads it there.
	err := client.IgnoreNotFound(w.client.Delete(w.t.Context(), is.DeepCopy()))
	if err := errors.Join(err, w.client.Create(w.t.Context(), is.DeepCopy())); err != nil {
		w.t.Fatal(err)
	}
	if found {
		w.c.leaseHandler().Update(w.t.Context(),
			event.TypedUpdateEvent[*coordinationv1.Lease]{ObjectOld: was, ObjectNew: is}, worldQueue{w: w})
	} else {
		w.c.leaseHandler().Create(w.t.Context(), event.TypedCreateEvent[*coordinationv1.Lease]{Object: is}, worldQueue{w: w})
	}
}

// TestABlip: a link that is back for some seconds ends no hold.
func TestABlip(t *testing.T) {
	for name, reports := range map[string]bool{"of a pool with a leader": true, "of one without": false} {
		t.Run(name, func(t *testing.T) {
			w := well(t, twoHours)
			if reports {
				w.report("n2", "n1", "n2", "n3")
			}
			w.cut("n1", "n2", "n3")
			w.pass(2 * time.Minute)
			w.wantSaid("cut", "Warning WholePoolCut")
			end := func() string {
				_, end, _ := strings.Cut(w.says("n1").Message, "until ")
				return end
			}
			was := end()
			for _, node := range []string{"n1", "n2", "n1"} {
				w.heal(node)
				w.pass(12 * time.Second)
				w.cut(node)
				w.pass(5 * time.Minute)
				w.wantReasons("after a blip of "+node, "n1 WholePoolCut", "n2 WholePoolCut", "n3 WholePoolCut")
				w.wantSaid("after a blip of " + node)
			}
			if len(w.evicting) > 0 || was != end() {
				t.Errorf("evicted %v; held until %s, before until %s", w.evicting, end(), was)
			}
			w.pass(2 * time.Hour)
			w.wantReasons("over", "n1 HoldExpired", "n2 HoldExpired", "n3 HoldExpired")
			w.wantSaid("over", "Normal HoldExpired")
		})
	}
}

// TestWhoIsAWitness: a silent node is given up once the leader of its pool hears others, and not it.
func TestWhoIsAWitness(t *testing.T) {
	w := well(t, twoHours)
	w.report("n2", "n1", "n2", "n3")
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Minute)
	w.wantSaid("cut", "Warning WholePoolCut")
	w.heal("n1")
	w.pass(5 * time.Minute)
	w.wantReasons("one speaks, over a line of its own", "n1 NodeSpeaks", "n2 WholePoolCut", "n3 WholePoolCut")
	w.report("n1", "n1")
	w.pass(time.Minute)
	w.wantReasons("it leads, and hears itself", "n1 NodeSpeaks", "n2 WholePoolCut", "n3 WholePoolCut")
	w.report("n1", "n1", "n2", "n3")
	w.pass(time.Minute)
	w.wantReasons("it hears all", "n1 NodeSpeaks", "n2 WholePoolCut", "n3 WholePoolCut")
	w.wantSaid("nothing has ended")
	w.report("n1", "n1", "n3")
	w.pass(time.Second)
	w.wantReasons("it hears one of them", "n1 NodeSpeaks", "n2 OtherNodesSpeak", "n3 WholePoolCut")
	w.wantEvicting("it hears one of them", "n2")
	w.heal("n3")
	w.pass(time.Minute)
	w.wantSaid("that speaks, too", "Normal PoolSpeaks")
}

// TestWhoHearsElsewhere: a node that is heard at a standby alone is not given up, for as long as that has been said just now.
func TestWhoHearsElsewhere(t *testing.T) {
	const standby = "yurt-coordinator--1-p1"
	w := well(t, twoHours)
	w.report("n1", "n1", "n2", "n3")
	w.reportAs(standby, "n3", "n1", "n2", "n3")
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Minute)
	w.wantSaid("cut", "Warning WholePoolCut")
	w.heal("n1")
	w.heal("n3")
	w.pass(5 * time.Minute)
	w.reportAs(standby, "n3", "n2", "n3")
	w.report("n1", "n1", "n3")
	w.pass(time.Second)
	w.wantReasons("it is heard at a standby", "n1 NodeSpeaks", "n2 WholePoolCut", "n3 NodeSpeaks")
	w.pass(time.Minute)
	w.report("n1", "n1", "n3")
	w.pass(time.Second)
	w.wantReasons("that was long ago", "n1 NodeSpeaks", "n2 OtherNodesSpeak", "n3 NodeSpeaks")
}

// TestGives is the table of who may be given up.
func TestGives(t *testing.T) {
	within := func(name edge.NodeName) Member { return Member{Name: name, Held: true, Within: true} }
	report := func(leader edge.NodeName, reached ...edge.NodeName) Report {
		return Report{Fresh: true, Leader: leader, Reached: reached}
	}
	old := report("n1", "n1", "n3")
	old.Fresh = false
	three := []Member{within("n1"), within("n2"), within("n3")}
	others := []Member{within("n1"), within("n2"), {Name: "new"}}
	hearsIt := report("n3", "n2", "n3")
	for _, tt := range []struct {
		what    string
		members []Member
		reports []Report
		want    bool
	}{
		{"no leader has ever reported", three, nil, true},
		{"a pool of two", three[:2], []Report{report("n1")}, true},
		{"an old report", three, []Report{old}, false},
		{"it hears another", three, []Report{report("n1", "n1", "n3")}, true},
		{"it hears itself", three, []Report{report("n1", "n1")}, false},
		{"it hears nobody", three, []Report{report("n1")}, false},
		{"it hears this one", three, []Report{report("n1", "n1", "n2", "n3")}, false},
		{"it hears one that was not cut off", others, []Report{report("n1", "n1", "new")}, false},
		{"it was not cut off, and hears one that was", others, []Report{report("new", "n1", "new")}, true},
		{"another leader hears this one", three, []Report{report("n1", "n1", "n3"), hearsIt}, false},
		{"another leader hears another", three, []Report{report("n1", "n1"), report("n3", "n1", "n3")}, true},
		{"another leader's report is old", three, []Report{old, report("n3", "n1", "n3")}, true},
	} {
		if got := givesUp(within("n2"), tt.members, tt.reports); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.what, got, tt.want)
		}
	}
}

// TestAReportFromBefore: what a leader said before the cut is no word about what came after.
func TestAReportFromBefore(t *testing.T) {
	w := well(t, twoHours)
	w.report("n2", "n1", "n2", "n3")
	w.pass(10 * time.Second)
	w.report("n2", "n2", "n3")
	w.cut("n1", "n2", "n3")
	w.pass(2 * time.Minute)
	w.start() // it finds the report
	w.pass(time.Second)
	w.heal("n2")
	w.pass(2 * time.Minute)
	w.wantReasons("n2 speaks", "n1 WholePoolCut", "n2 NodeSpeaks", "n3 WholePoolCut")
}
