package nodepool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1beta2"
)

// TestAsKstatusReadsIt: Ready when all nodes have it, Stalled when none can, and others' conditions stay.
func TestAsKstatusReadsIt(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	const theirsStays = "LeaderReady=True/ "
	theirs := v1beta2.NodePoolCondition{Type: "LeaderReady", Status: corev1.ConditionTrue}
	p := pool(func(s *v1beta2.NodePoolSpec) { s.Labels = map[string]string{"region": "north"} })
	p.Status.Conditions = []v1beta2.NodePoolCondition{theirs}
	for _, step := range []struct {
		labels map[string]string
		all    bool
		want   string
		says   string
	}{
		{map[string]string{"region": "north"}, false, theirsStays + "Ready=False/NodesDiffer Stalled=False/NotStalled", "Events"},
		{map[string]string{"region": "north"}, true, theirsStays + "Ready=True/AllNodes Stalled=False/NotStalled", "All nodes"},
		{
			map[string]string{"region": "far north"}, true,
			theirsStays + "Ready=False/InvalidValues Stalled=True/InvalidValues", "label region",
		},
	} {
		p.Spec.Labels = step.labels
		p.Status.Conditions = conditions(p, step.all, early)
		var got []string
		for _, c := range p.Status.Conditions {
			got = append(got, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
		if is := strings.Join(got, " "); is != step.want || !strings.Contains(p.Status.Conditions[1].Message, step.says) {
			t.Errorf("%s, %q, want %s", is, p.Status.Conditions[1].Message, step.want)
		}
	}
	again := p.Status
	again.Conditions = conditions(p, true, late)
	if !equal(p.Status, again) || again.Conditions[1].LastTransitionTime.Time != early.Time {
		t.Errorf("time is a change: %+v", again.Conditions)
	}
}

func TestInvalid(t *testing.T) {
	for want, change := range map[string]func(*v1beta2.NodePoolSpec){
		"":             func(*v1beta2.NodePoolSpec) {},
		"label a b":    func(s *v1beta2.NodePoolSpec) { s.Labels = map[string]string{"a b": ""} },
		"label a":      func(s *v1beta2.NodePoolSpec) { s.Labels = map[string]string{"a": "ü"} },
		"annotation ü": func(s *v1beta2.NodePoolSpec) { s.Annotations = map[string]string{"ü": ""} },
		"taint a b":    func(s *v1beta2.NodePoolSpec) { s.Taints = []corev1.Taint{taint("a b", "", "NoSchedule")} },
		"no effect":    func(s *v1beta2.NodePoolSpec) { s.Taints = []corev1.Taint{taint("a", "", "Never")} },
	} {
		got := strings.Join(invalid(pool(change)), "; ")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
