package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// Pin has the scheduler put a Pod on a node of a pool, and on no other. Pin uses a nodeSelector with the pool's label and not
// nodeName, so that an admission policy sees to which pool the Pod goes.
func Pin(spec *corev1.PodSpec, pool edge.PoolName, node edge.NodeName) {
	spec.NodeSelector = map[string]string{edge.LabelNodePool: string(pool)}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{string(node)},
			}},
		}}},
	}}
}

// PinnedTo returns the node for which Pin has made a Pod; empty if it has not.
func PinnedTo(p *corev1.Pod) edge.NodeName {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) != 1 || len(required.NodeSelectorTerms[0].MatchFields) != 1 {
		return ""
	}
	if values := required.NodeSelectorTerms[0].MatchFields[0].Values; len(values) == 1 {
		return edge.NodeName(values[0])
	}
	return ""
}
