package heartbeat

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

var update = flag.Bool("update", false, "rewrite testdata")

// stateOf is a Node in a line.
func stateOf(node *corev1.Node) string {
	if node == nil {
		return "no Node"
	}
	taint := "schedulable"
	if slices.ContainsFunc(node.Spec.Taints, isOurs) {
		taint = "tainted"
	}
	ready, c := "", ConditionOf(node, edge.ConditionCloudLinkDown)
	if r := ConditionOf(node, corev1.NodeReady); r.Status != corev1.ConditionTrue {
		ready = fmt.Sprintf(" Ready=%s %s", r.Status, r.Reason)
	}
	return strings.TrimSpace(fmt.Sprintf("%-11s CloudLinkDown=%-7s %s%s", taint, c.Status, c.Reason, ready))
}

// TestLife compares a node's life, as the controller tells it, with testdata/life.txt.
func TestLife(t *testing.T) {
	w := newWorld(t)
	begin := w.clock.Now()
	var out strings.Builder
	step := func(what string, act func()) {
		act()
		reconciles := w.reconciles
		w.pass(time.Second)
		fmt.Fprintf(&out, "%5v  %-42s %s\n", w.clock.Now().Sub(begin)-time.Second, what, stateOf(w.node("n1")))
		for _, said := range w.said() {
			fmt.Fprintf(&out, "       + %s\n", said)
		}
		if n := w.reconciles - reconciles; n > 3 {
			t.Errorf("%s: %d reconciles", what, n)
		}
		w.pass(9 * time.Second)
	}
	nothing := func() {}
	direct, delegated := func() { w.renew("n1", false) }, func() { w.renew("n1", true) }

	step("Node is created", func() { w.createNode(aNode(false, none, "")) })
	step("Lease is created", direct)
	step("renewed by the node", direct)
	step("renewed by the node", direct)
	step("renewed by another node", delegated)
	step("renewed by another node", delegated)
	step("renewed by the node", direct)
	step("renewed by another node", delegated)
	step("silence", nothing)
	step("silence", nothing)
	step("silence", nothing)
	step("silence", nothing)
	step("silence", nothing)
	step("renewed by the node", direct)
	step("renewed by another node", delegated)
	step("controller restarts", w.start)
	step("renewed by another node", delegated)
	step("controller restarts, link healed meanwhile", func() {
		w.leases["n1"].Annotations = nil
		w.start()
	})
	step("renewed by the node", direct)
	step("silence", nothing)
	step("silence", nothing)
	step("silence", nothing)
	step("silence", nothing)
	step("renewed by another node", delegated)
	step("annotation is \"yes\", which is not \"true\"", func() {
		w.renew("n1", true)
		w.editLease("n1", func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{"openyurt.io/delegate-heartbeat": "yes"}
		})
	})
	step("renewed by another node", delegated)
	step("somebody removes our taint", func() {
		w.editNode("n1", func(n *corev1.Node) { n.Spec.Taints = foreignTaints() })
	})
	step("Lease is deleted", func() { w.deleteLease("n1") })
	step("Lease is created", direct)
	step("renewed by another node", delegated)
	step("its pool shows such nodes NotReady", func() { w.show("p1", "NotReady") })
	step("controller restarts", w.start)
	step("kube-controller-manager taints", func() {
		w.editNode("n1", func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, evictingTaint()) })
	})
	step("renewed by another node", delegated)
	step("renewed by the node", direct)
	step("renewed by another node", delegated)
	step("its pool shows such nodes Ready", func() { w.show("p1", "Ready") })
	step("renewed by another node", delegated)
	step("its pool shows such nodes NotReady", func() { w.show("p1", "NotReady") })
	step("silence", nothing)
	step("silence", nothing)
	step("silence", nothing)
	step("renewed by another node", delegated)
	step("Lease is deleted", func() { w.deleteLease("n1") })
	step("Node is deleted", func() { w.deleteNode("n1") })

	const golden = "testdata/life.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s\n(go test -run TestLife -update ./internal/cloud/heartbeat)", out.String(), want)
	}
	if len(w.policy.sightings.byNode) != 0 {
		t.Errorf("remembers a node that is gone: %+v", w.policy.sightings.byNode)
	}
}
