package nodepool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// Reasons of the conditions.
const (
	// ReasonAllNodes: all nodes have what the pool wants.
	ReasonAllNodes = "AllNodes"
	// ReasonNodesDiffer: some do not have it yet, or refuse it; an Event says which refuses.
	ReasonNodesDiffer = "NodesDiffer"
	// ReasonInvalidValues: no node can have it.
	ReasonInvalidValues = "InvalidValues"
	// ReasonNotStalled: nothing is known that must be mended first.
	ReasonNotStalled = "NotStalled"
)

// invalid returns what a NodePool asks for that no Node can have. The policy nodepool-values refuses such NodePools, but a
// NodePool may be older than the policy, or the policy may be off.
func invalid(pool *v1beta2.NodePool) (wrong []string) {
	say := func(what string, is []string) {
		if len(is) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s", what, strings.Join(is, "; ")))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pool.Spec.Labels)) {
		say("label "+key, slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(pool.Spec.Labels[key])))
	}
	for _, key := range slices.Sorted(maps.Keys(pool.Spec.Annotations)) {
		say("annotation "+key, validation.IsQualifiedName(strings.ToLower(key)))
	}
	for _, taint := range pool.Spec.Taints {
		say("taint "+taint.Key, slices.Concat(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)))
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			say("taint "+taint.Key, []string{fmt.Sprintf("there is no effect %q", taint.Effect)})
		}
	}
	return wrong
}

// conditions returns those of a pool whose nodes all have what it wants, or do not. Others' stay.
func conditions(pool *v1beta2.NodePool, all bool, now metav1.Time) []v1beta2.NodePoolCondition {
	next := slices.Clone(pool.Status.Conditions)
	set := func(kind string, is bool, reason, message string) {
		c := v1beta2.NodePoolCondition{
			Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: &now, Reason: reason, Message: message,
		}
		if is {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(next, func(o v1beta2.NodePoolCondition) bool { return o.Type == kind })
		if i < 0 {
			next = append(next, c)
			return
		}
		if next[i].Status == c.Status && next[i].LastTransitionTime != nil {
			c.LastTransitionTime = next[i].LastTransitionTime
		}
		next[i] = c
	}
	wrong := invalid(pool)
	switch {
	case len(wrong) > 0:
		message := "No node can have this; correct the NodePool: " + edge.Some(wrong)
		set(v1beta2.NodePoolReady, false, ReasonInvalidValues, message)
		set(v1beta2.NodePoolStalled, true, ReasonInvalidValues, message)
		return next
	case all:
		set(v1beta2.NodePoolReady, true, ReasonAllNodes, "All nodes have what the pool wants.")
	default:
		set(v1beta2.NodePoolReady, false, ReasonNodesDiffer,
			"Not all nodes have what the pool wants. If this lasts, see the Events of the NodePool.")
	}
	set(v1beta2.NodePoolStalled, false, ReasonNotStalled, "Nothing has to be fixed first.")
	return next
}
