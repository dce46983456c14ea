package shareserver

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

// heard is a Presence that remembers.
type heard []string

func (h *heard) Shown(p edge.PodPresence) {
	*h = append(*h, fmt.Sprintf("%s of %s at %d of %d, said %t, ready %t",
		p.Name, p.Node, p.Revision, p.History, p.Said, p.Ready))
}
func (h *heard) Hidden(k stream.Key) { *h = append(*h, "-"+k.Name) }

// withReady returns a Pod that is ready.
func withReady(t *testing.T, o stream.Object) stream.Object {
	t.Helper()
	var p corev1.Pod
	if err := p.Unmarshal(o.Raw); err != nil {
		t.Fatal(err)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o.Raw = raw
	return o
}

// TestPresence: what is told of Pods is what is shown of them, and of no others.
func TestPresence(t *testing.T) {
	b := newBench(t, false)
	h := &heard{}
	b.objects.present = h
	expect := func(why string, want ...string) {
		t.Helper()
		if !slices.Equal(*h, want) {
			t.Errorf("%s: told is %q, want %q", why, *h, want)
		}
		*h = nil
	}
	one, two := b.hub("n1"), b.hub("n2")
	one.Ask()
	two.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	expect("a Node")
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)))
	expect("a Pod", "a of n1 at 10 of 0, said false, ready false")
	one.Must(pooltest.KindPod, pooltest.Put(withReady(t, pooltest.PodOf(t, "n1", "a", 12))))
	expect("a change", "a of n1 at 12 of 0, said false, ready true")
	two.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "a", 14)))
	expect("another node says that it has it", "-a")
	two.Ask()
	two.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n2", "a", 20)))
	expect("it does not say so any more")
	one.Ask()
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 12)))
	expect("the one that is left is asked again", "a of n1 at 12 of 0, said false, ready false")
	one.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "a", 30)))
	expect("gone", "-a")
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "b", 31)))
	expect("another", "b of n1 at 31 of 0, said false, ready false")
	b.clock.Step(maxSilence)
	b.objects.Sweep(t.Context())
	expect("its hub is silent", "-b")
}
