package ops

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"yurtcoordinator/lab/e2e/kit"
)

// What a played kubelet sends brings a Pod to the round, whatever it was in, and has its uid.
func TestStatusPatch(t *testing.T) {
	p := stormPod("n1", 1)
	p.UID = "u1"
	for round := int32(1); round < 4; round++ {
		patch, err := statusPatch(p, playedStatus(p, round, time.Unix(int64(round), 0)))
		if err != nil {
			t.Fatal(err)
		}
		var sent struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(patch, &sent); err != nil || sent.Metadata.UID != "u1" {
			t.Errorf("%s: %v", patch, err)
		}
		before, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		p = &corev1.Pod{}
		if err := json.Unmarshal(after, p); err != nil {
			t.Fatal(err)
		}
		if roundOf(p) != round || !kit.PodReady(p) || p.Spec.NodeName != "n1" {
			t.Errorf("round %d: %+v", round, p.Status)
		}
	}
	if got := roundOf(&corev1.Pod{}); got != 0 {
		t.Errorf("a Pod without a status is in round %d", got)
	}
}

func TestShownRounds(t *testing.T) {
	r := newShownRounds()
	p := stormPod("n1", 1)
	p.Namespace = stormNamespace
	r.see(p)
	p.Status = playedStatus(p, 1, time.Unix(1, 0))
	r.see(p)
	first := r.of(1)[p.Name]
	r.see(p)
	other := stormPod("n1", 2)
	other.Namespace = kit.Namespace
	r.see(other)
	r.see("no Pod")
	if len(r.of(0)) != 1 || len(r.of(1)) != 1 || len(r.of(2)) != 0 || r.of(1)[p.Name] != first {
		t.Errorf("%v, %v, %v", r.of(0), r.of(1), r.of(2))
	}
}
