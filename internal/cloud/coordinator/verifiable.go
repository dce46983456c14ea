package coordinator

import (
	"fmt"
	"strings"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// Reasons of the condition KubeletsVerifiable.
const (
	// ReasonKubeletsKnown: the coordinator can verify each kubelet that it may be asked to call.
	ReasonKubeletsKnown = "KubeletsKnown"
	// ReasonKubeletsOverdue: so it can, but certificates end soon, and nobody approves the next.
	ReasonKubeletsOverdue = "KubeletsOverdue"
	// ReasonKubeletsUnapproved: kubelets wait for certificates that nobody approves, and serve nothing meanwhile.
	ReasonKubeletsUnapproved = "KubeletsUnapproved"
	// ReasonKubeletsUnknown: hubs have not found their kubelets' certificates, or don't say.
	ReasonKubeletsUnknown = "KubeletsUnknown"
	// ReasonNoReport: the pool's leader does not report, or nobody leads, or no node reaches the coordinator.
	ReasonNoReport = "NoReport"
)

// kubelets is what a pool's leader last reported of its kubelets; nil means that it does not report, or not of these.
type kubelets struct {
	// reached are the pool's nodes that reach the coordinator, in order.
	reached []edge.NodeName
	ways    map[edge.NodeName]edge.KubeletWay
}

// troubles lists the ways in which a kubelet can't be verified, the gravest first. For each it says what is wrong and what to
// do. The last is for a hub that reports nothing.
var troubles = []struct {
	way  edge.KubeletWay
	says string
}{
	{edge.KubeletUnapproved, "kubelet has serverTLSBootstrap, and nobody has approved its certificate: give " +
		"controller.kubeletServing.cidrs in the chart's values, or kubectl certificate approve"},
	{edge.KubeletEnded, "kubelet has serverTLSBootstrap, and its certificate has ended: give " +
		"controller.kubeletServing.cidrs in the chart's values, or kubectl certificate approve"},
	{edge.KubeletMissing, "kubelet's certificate is not where its hub looks: see yurthub check on the node"},
	{edge.KubeletUnreadable, "its hub can't read kubelet's certificate: see yurthub check on the node"},
	{"", "its hub does not report it: it has just started"},
}

// verifiable returns the condition KubeletsVerifiable, and how many kubelets the pool's coordinator can't verify. It leaves out
// nodes that do not reach the coordinator, because the coordinator may lack the reports of their hubs.
func verifiable(nodes int, k *kubelets) (status v1alpha1.ConditionStatus, found finding, unknown int) {
	if k == nil || len(k.reached) == 0 {
		return v1alpha1.ConditionUnknown, finding{Reason: ReasonNoReport,
			Message: "Nobody reports how the kubelets of this pool can be verified: nobody leads it, or its " +
				"links are cut."}, 0
	}
	by := map[edge.KubeletWay][]string{}
	for _, n := range k.reached {
		by[k.ways[n]] = append(by[k.ways[n]], string(n))
	}
	var says []string
	for _, t := range troubles {
		if names := by[t.way]; len(names) > 0 {
			unknown += len(names)
			says = append(says, edge.Some(names)+": "+t.says)
		}
	}
	overdue := ""
	if names := by[edge.KubeletOverdue]; len(names) > 0 {
		overdue = " " + edge.Some(names) + ": kubelet has serverTLSBootstrap, its certificate ends soon, and nobody has " +
			"approved the next: give controller.kubeletServing.cidrs in the chart's values, or kubectl certificate approve."
	}
	how := fmt.Sprintf("%d verified by the certificate that the node's hub reports, %d by the cluster's authority",
		len(by[edge.KubeletPinned]), len(by[edge.KubeletSigned])+len(by[edge.KubeletOverdue]))
	if left := nodes - len(k.reached); left > 0 {
		how += fmt.Sprintf("; not checked, since they do not reach the coordinator: %d", left)
	}
	if unknown == 0 {
		known := finding{OK: true, Reason: ReasonKubeletsKnown, Message: "Kubelets: " + how + "." + overdue}
		if overdue != "" {
			known.Reason = ReasonKubeletsOverdue
		}
		return v1alpha1.ConditionTrue, known, 0
	}
	reason := ReasonKubeletsUnknown
	if len(by[edge.KubeletUnapproved])+len(by[edge.KubeletEnded]) > 0 {
		reason = ReasonKubeletsUnapproved
	}
	return v1alpha1.ConditionFalse, finding{Reason: reason, Message: fmt.Sprintf("logs, exec and top at the coordinator "+
		"do not work on %s. %s. Other kubelets: %s.%s", edge.Count(unknown, "node", "nodes"), strings.Join(says, ". "), how,
		overdue)}, unknown
}
