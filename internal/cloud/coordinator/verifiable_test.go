package coordinator

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

func TestVerifiable(t *testing.T) {
	type ways map[edge.NodeName]edge.KubeletWay
	many := &kubelets{ways: ways{}}
	for i := range 9 {
		n := edge.NodeName(fmt.Sprintf("n%d", i))
		many.reached, many.ways[n] = append(many.reached, n), edge.KubeletUnapproved
	}
	for name, tt := range map[string]struct {
		k       *kubelets
		status  v1alpha1.ConditionStatus
		reason  string
		unknown int
		says    []string
		not     string
	}{
		"no report":      {nil, v1alpha1.ConditionUnknown, ReasonNoReport, 0, []string{"Nobody reports"}, ""},
		"nobody reaches": {&kubelets{}, v1alpha1.ConditionUnknown, ReasonNoReport, 0, nil, ""},
		"all are known": {
			&kubelets{[]edge.NodeName{"n1", "n2", "n3"}, ways{"n1": edge.KubeletPinned, "n2": edge.KubeletSigned,
				"n3": edge.KubeletPinned}},
			v1alpha1.ConditionTrue, ReasonKubeletsKnown, 0, []string{"2 verified by the certificate",
				"1 by the cluster's authority"}, "not checked",
		},
		"some do not reach it": {
			&kubelets{[]edge.NodeName{"n1"}, ways{"n1": edge.KubeletPinned, "n2": edge.KubeletMissing}},
			v1alpha1.ConditionTrue, ReasonKubeletsKnown, 0, []string{"not checked, since they do not reach the " +
				"coordinator: 2"}, "n2",
		},
		"one's next is overdue": {
			&kubelets{[]edge.NodeName{"n1", "n2"}, ways{"n1": edge.KubeletSigned, "n2": edge.KubeletOverdue}},
			v1alpha1.ConditionTrue, ReasonKubeletsOverdue, 0,
			[]string{"2 by the cluster's authority", "n2: kubelet has serverTLSBootstrap", "kubeletServing.cidrs"}, "n1",
		},
		"one waits for approval": {
			&kubelets{[]edge.NodeName{"n1", "n2"}, ways{"n1": edge.KubeletSigned, "n2": edge.KubeletUnapproved}},
			v1alpha1.ConditionFalse, ReasonKubeletsUnapproved, 1, []string{"n2: kubelet has serverTLSBootstrap",
				"kubeletServing.cidrs"}, "n1",
		},
		"one's has ended": {
			&kubelets{[]edge.NodeName{"n1"}, ways{"n1": edge.KubeletEnded}},
			v1alpha1.ConditionFalse, ReasonKubeletsUnapproved, 1, []string{"has ended", "kubeletServing.cidrs"}, "",
		},
		"some are not found, of one nothing is heard": {
			&kubelets{[]edge.NodeName{"n1", "n2", "n3"}, ways{"n1": edge.KubeletMissing, "n2": edge.KubeletUnreadable}},
			v1alpha1.ConditionFalse, ReasonKubeletsUnknown, 3,
			[]string{"n1: kubelet's certificate is not where", "n2: its hub can't read", "n3: its hub does not report it",
				"yurthub check"}, "",
		},
		"many": {
			many, v1alpha1.ConditionFalse, ReasonKubeletsUnapproved, 9, []string{"n0, n1, n2, n3, n4 and 4 more: kubelet"}, "n5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, found, unknown := verifiable(3, tt.k)
			if status != tt.status || found.Reason != tt.reason || unknown != tt.unknown ||
				found.OK != (tt.status == v1alpha1.ConditionTrue) || tt.not != "" && strings.Contains(found.Message, tt.not) {
				t.Errorf("%s %+v, %d", status, found, unknown)
			}
			for _, part := range tt.says {
				if !strings.Contains(found.Message, part) {
					t.Errorf("no %q in: %s", part, found.Message)
				}
			}
		})
	}
}

// TestKubeletsInStatus: the condition comes with the first report, and an Event with each report that something is wrong.
func TestKubeletsInStatus(t *testing.T) {
	ok := finding{OK: true, Reason: ReasonDeployed}
	want := wantedStatus{pending: ok, certs: finding{OK: true, Reason: ReasonIssued}, nodes: 1,
		ready: finding{OK: true, Reason: ReasonServing}}
	status, _, _ := next(v1alpha1.YurtCoordinatorStatus{}, 1, want, metav1.Time{})
	for i, step := range []struct {
		way    edge.KubeletWay // "" means that nobody reports
		status v1alpha1.ConditionStatus
		events int
		bad    bool
	}{
		{"", "", 0, false},
		{edge.KubeletPinned, v1alpha1.ConditionTrue, 0, false},
		{"", v1alpha1.ConditionUnknown, 0, false},
		{edge.KubeletSigned, v1alpha1.ConditionTrue, 0, false},
		{edge.KubeletOverdue, v1alpha1.ConditionTrue, 1, true},
		{edge.KubeletUnapproved, v1alpha1.ConditionFalse, 1, true},
		{edge.KubeletEnded, v1alpha1.ConditionFalse, 0, true},
		{edge.KubeletMissing, v1alpha1.ConditionFalse, 1, true},
		{edge.KubeletPinned, v1alpha1.ConditionTrue, 1, false},
		{"", v1alpha1.ConditionUnknown, 0, false},
		{edge.KubeletMissing, v1alpha1.ConditionFalse, 1, true},
	} {
		want.kubelets = nil
		if step.way != "" {
			want.kubelets = &kubelets{[]edge.NodeName{"n1"}, map[edge.NodeName]edge.KubeletWay{"n1": step.way}}
		}
		var transitions []v1alpha1.YurtCoordinatorCondition
		status, _, transitions = next(status, 1, want, metav1.Time{})
		got := v1alpha1.ConditionStatus("")
		for _, c := range status.Conditions {
			if c.Type == v1alpha1.YurtCoordinatorKubeletsVerifiable {
				got = c.Status
			}
		}
		if got != step.status || len(transitions) != step.events || step.events > 0 && bad(transitions[0]) != step.bad {
			t.Errorf("step %d, %q: %q, Events of %+v", i, step.way, got, transitions)
		}
	}
}
