package heartbeat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// model is the policy as a dumb reader of the whole history would apply it: it keeps every Lease it was ever shown and
// looks at all of them each time it is asked. It has no queue and no timers: it is asked at every second.
type model struct {
	history []shown
	tainted bool
	status  corev1.ConditionStatus
	said    []string

	notReady bool   // the pool wants its delegated nodes shown NotReady
	ready    string // what Ready says: "True", "shown" by us, or "other"
	evicting bool   // kube-controller-manager's taint
}

// shown is a Lease as it was shown to the controller at some time; nil: it was deleted.
type shown struct {
	at    time.Time
	lease *coordinationv1.Lease
}

func (m *model) verdict(now time.Time) string {
	var heard time.Time
	var before, last *coordinationv1.Lease
	renewed := false
	for _, s := range m.history {
		if last = s.lease; last == nil {
			continue
		}
		switch stamp := last.Spec.RenewTime.Time; {
		case before == nil: // found
			heard, renewed = s.at, false
		case before.UID != last.UID: // replaced
			heard, renewed = s.at, stamp.After(before.Spec.RenewTime.Time)
		case number(before.ResourceVersion) > number(last.ResourceVersion): // restored
			heard, renewed = s.at, false
		case !stamp.Equal(before.Spec.RenewTime.Time):
			heard, renewed = s.at, true
		}
		before = last
	}
	switch {
	case len(m.history) == 0:
		return "nothing"
	case last == nil, now.Sub(heard) >= testSilence:
		return "silent"
	case last.Annotations[edge.DelegateHeartbeat] == "true" && renewed:
		return "delegated"
	case last.Annotations[edge.DelegateHeartbeat] == "true":
		return "perhaps delegated"
	case renewed:
		return "direct"
	}
	return "perhaps direct"
}

func number(revision string) int {
	n, err := strconv.Atoi(revision)
	if err != nil {
		panic(err)
	}
	return n
}

func (m *model) look(now time.Time) {
	before := m.status
	switch m.verdict(now) {
	case "delegated":
		m.tainted, m.status = true, yes
	case "perhaps delegated":
		m.tainted = true
	case "direct":
		m.tainted, m.status = false, no
	case "perhaps direct":
		m.tainted = false
	case "silent":
		m.status = unknown
	}
	if m.status != before {
		m.said = append(m.said, fmt.Sprintf("condition %s", m.status))
	}
	switch verdict := m.verdict(now); {
	case verdict == "delegated" && m.notReady && m.ready == "True":
		m.ready = "shown"
	case strings.HasPrefix(verdict, "perhaps"), verdict == "delegated" && m.notReady:
	case m.ready == "shown":
		m.ready = "True"
	}
	m.evicting = m.evicting && m.ready != "shown"
}

// TestAgainstModel drives controller and model with the same random histories: heartbeats of both kinds, silences,
// clocks set back, Leases deleted, replaced and restored, restarts, strangers' writes to the Node, conflicts.
// A second after each step the Node must be what the model says, whatever the controller did not look at.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(32) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2026))
			w := newWorld(t)
			w.fail = sometimes(r)
			var m model
			var log []string
			for range 60 {
				what := act(r, w, &m)
				log = append(log, what)
				// Time passes in seconds; the controller has one to act, so the model looks at its beginning.
				for range 1 + r.IntN(20)*r.IntN(2) {
					m.look(w.clock.Now())
					w.pass(time.Second)
					if complaint := compare(w, &m); complaint != "" {
						t.Fatalf("%s\nafter: %s", complaint, strings.Join(log, ", "))
					}
				}
			}
		})
	}
}

// act does one random thing to the world and shows the model what the controller saw of it.
func act(r *rand.Rand, w *world, m *model) string {
	seen := func() {
		m.history = append(m.history, shown{w.clock.Now(), w.leases["n1"]})
	}
	lease, found := w.leases["n1"]
	switch pick := r.IntN(26); {
	case w.node("n1") == nil && pick < 10:
		w.createNode(aNode(false, none, ""))
		m.tainted, m.status, m.ready, m.evicting = false, none, "True", false
		return "Node created"
	case pick == 20:
		m.notReady = !m.notReady
		w.show("p1", map[bool]v1alpha1.DelegatedNodeStatus{true: "NotReady", false: "Ready"}[m.notReady])
		return fmt.Sprint("pool wants NotReady: ", m.notReady)
	case pick < 5:
		w.renew("n1", false)
		seen()
		return "direct"
	case pick < 10:
		w.renew("n1", true)
		seen()
		return "delegated"
	case pick < 12 && found:
		w.editLease("n1", func(l *coordinationv1.Lease) { annotate(l, l.Annotations == nil) })
		seen()
		return "annotation flipped"
	case pick == 12 && found:
		w.editLease("n1", func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(-5 * time.Minute)}
		})
		seen()
		return "clock set back"
	case pick == 24 && found:
		w.editLease("n1", func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": fmt.Sprint(r.Int())} })
		seen()
		return "Lease edited"
	case pick == 25 && found:
		back := lease.Spec.RenewTime.Add(-time.Duration(r.IntN(3)) * time.Minute)
		w.editLease("n1", func(l *coordinationv1.Lease) {
			w.revision -= 7
			l.ResourceVersion = strconv.Itoa(w.revision)
			l.Spec.RenewTime = &metav1.MicroTime{Time: back}
		})
		seen()
		return "Lease restored from a backup"
	case pick == 13 && found:
		w.deleteLease("n1")
		seen()
		return "Lease deleted"
	case pick == 14 && found:
		back := lease.Spec.RenewTime.Add(-time.Duration(r.IntN(3)) * time.Minute)
		w.editLease("n1", func(l *coordinationv1.Lease) {
			l.UID += "x"
			l.Spec.RenewTime = &metav1.MicroTime{Time: back}
		})
		seen()
		return "Lease replaced by an older one"
	case pick == 15:
		w.start()
		m.history = nil
		if found {
			seen()
		}
		return "restart"
	case w.node("n1") == nil:
		return "nothing"
	case pick == 16:
		w.editNode("n1", func(n *corev1.Node) { n.Spec.Taints = foreignTaints() })
		m.tainted, m.evicting = false, false
		return "taint removed"
	case pick == 21:
		status := []corev1.ConditionStatus{yes, no, unknown}[r.IntN(3)]
		m.ready = map[corev1.ConditionStatus]string{yes: "True"}[status]
		w.editNode("n1", func(n *corev1.Node) {
			i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
			n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = status, "Somebody"
		})
		return fmt.Sprint("somebody says Ready=", status)
	case pick == 22:
		w.editNode("n1", func(n *corev1.Node) {
			n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, Evicts), evictingTaint())
		})
		m.evicting = true
		return "evicting taint added"
	case pick == 23:
		w.editNode("n1", func(n *corev1.Node) { delete(n.Labels, edge.LabelExcludeDisruption) })
		return "label removed"
	case pick == 17:
		w.editNode("n1", func(n *corev1.Node) { n.Spec.Taints = append(foreignTaints(), ourTaint(corev1.TaintEffectNoSchedule)) })
		m.tainted, m.evicting = true, false
		return "taint added"
	case pick == 18 && r.IntN(4) == 0:
		w.deleteNode("n1")
		if !found {
			m.history = nil // a node that is gone for good is forgotten
		}
		m.tainted, m.status = false, none
		return "Node deleted"
	}
	return "nothing"
}

// compare returns what differs; empty: nothing.
func compare(w *world, m *model) string {
	node := w.node("n1")
	if node == nil {
		m.said, m.status, m.tainted = nil, none, false
		if _, found := w.leases["n1"]; !found {
			m.history = nil
		}
		w.said()
		return ""
	}
	var conditions []string
	for _, said := range w.said() {
		if said, _, _ := strings.Cut(said, " ready"); strings.HasPrefix(said, "condition") {
			conditions = append(conditions, said)
		}
	}
	want := aNode(m.tainted, m.status, "")
	ready := ConditionOf(node, corev1.NodeReady)
	is := map[bool]string{ready.Status == yes: "True", isShown(node): "shown"}[true]
	evicting := slices.ContainsFunc(node.Spec.Taints, Evicts)
	rest := slices.DeleteFunc(slices.Clone(node.Spec.Taints), Evicts)
	switch {
	case is != m.ready, !ready.LastHeartbeatTime.Equal(&want.Status.Conditions[0].LastHeartbeatTime):
		return fmt.Sprintf("Ready is %+v, want %s and the kubelet's LastHeartbeatTime", ready, m.ready)
	case evicting != m.evicting, (node.Labels[edge.LabelExcludeDisruption] != "") != (m.ready == "shown"):
		return fmt.Sprintf("taints %v, labels %v, where Ready is %s", node.Spec.Taints, node.Labels, m.ready)
	case !equality.Semantic.DeepEqual(rest, want.Spec.Taints):
		return fmt.Sprintf("taints %v, want %v", node.Spec.Taints, want.Spec.Taints)
	case ConditionOf(node, edge.ConditionCloudLinkDown).Status != m.status:
		return fmt.Sprintf("condition %q, want %q", ConditionOf(node, edge.ConditionCloudLinkDown).Status, m.status)
	case len(node.Status.Conditions) != len(want.Status.Conditions):
		return fmt.Sprintf("conditions %v", node.Status.Conditions)
	case strings.Join(conditions, ",") != strings.Join(m.said, ","):
		return fmt.Sprintf("conditions written: %v, want %v", conditions, m.said)
	}
	m.said = nil
	return ""
}
