package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// Reasons of the condition Ready.
const (
	// ReasonServing: the Pod is ready.
	ReasonServing = "Serving"
	// ReasonPending: see the condition Pending.
	ReasonPending = "Pending"
	// ReasonNoPod: there is no Pod, yet or at the moment.
	ReasonNoPod = "NoPod"
	// ReasonNoNode: the Pod has no node, yet or because no node can take it.
	ReasonNoNode = "NoNode"
	// ReasonPodNotReady: the Pod has a node, but is not ready.
	ReasonPodNotReady = "PodNotReady"
	// ReasonRemoving: the YurtCoordinator is being deleted.
	ReasonRemoving = "Removing"
)

// readiness returns the condition Ready of a coordinator with this Pod.
func readiness(pod *corev1.Pod, slot edge.Slot) finding {
	if pod == nil {
		return finding{Reason: ReasonNoPod, Message: "The coordinator has no Pod. " +
			"If this lasts, see the YurtAppSet kube-system/" + slot.App() + "."}
	}
	if pod.Spec.NodeName == "" {
		message := "The scheduler has not seen it yet."
		if c := podCondition(pod, corev1.PodScheduled); c != nil && c.Message != "" {
			message = c.Message
		}
		return finding{Reason: ReasonNoNode, Message: fmt.Sprintf("Pod %s has no node: %s", pod.Name, message)}
	}
	if c := podCondition(pod, corev1.PodReady); c == nil || c.Status != corev1.ConditionTrue {
		return finding{Reason: ReasonPodNotReady, Message: fmt.Sprintf(
			"Pod %s on node %s is not ready. See kubectl -n kube-system describe pod %s.", pod.Name, pod.Spec.NodeName, pod.Name)}
	}
	return finding{OK: true, Reason: ReasonServing, Message: fmt.Sprintf(
		"Pod %s on node %s serves.", pod.Name, pod.Spec.NodeName)}
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func imageOf(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == containerName {
			return c.Image
		}
	}
	return ""
}

// wantedStatus is all that a YurtCoordinator's status must say.
type wantedStatus struct {
	pending, certs, ready finding // pending.OK means that nothing is in the way
	reconciling, stalled  finding // OK means that it is so; zero that it is not
	from                  []v1alpha1.SettingsGeneration
	// standbys is zero where none are asked for; missing is how many coordinators do not serve where some are.
	standbys           finding
	missing            int
	node               string
	coordinators       []v1alpha1.CoordinatorInSlot
	delegated, outside []string
	// kubelets are as the pool's leader reports; nodes is how many the pool has.
	kubelets *kubelets
	nodes    int
	// fillings are as the pool's leader reports, too.
	fillings fillings
	// held says whether evictions are held since the whole pool is cut off, as its Nodes say.
	held finding
}

// next returns the new status, whether it differs from the former one, and the changes of conditions that deserve an Event. A
// status that has only new times does not differ.
func next(was v1alpha1.YurtCoordinatorStatus, generation int64, want wantedStatus, now metav1.Time) (
	status v1alpha1.YurtCoordinatorStatus, changed bool, transitions []v1alpha1.YurtCoordinatorCondition,
) {
	status = *was.DeepCopy()
	status.ObservedGeneration, status.NodeName, status.DelegatedNodes = generation, want.node, want.delegated
	status.OutsidePoolNodes, status.Settings, status.Coordinators = want.outside, want.from, want.coordinators
	changed = was.ObservedGeneration != generation || was.NodeName != want.node ||
		!slices.Equal(was.DelegatedNodes, want.delegated) || !slices.Equal(was.OutsidePoolNodes, want.outside) ||
		!slices.Equal(was.Settings, want.from) || !equality.Semantic.DeepEqual(was.Coordinators, want.coordinators)
	truth := map[bool]v1alpha1.ConditionStatus{true: v1alpha1.ConditionTrue, false: v1alpha1.ConditionFalse}
	put := func(kind v1alpha1.YurtCoordinatorConditionType, holds v1alpha1.ConditionStatus, f finding,
		tells func(was v1alpha1.ConditionStatus) bool) {
		condition := v1alpha1.YurtCoordinatorCondition{
			Type: kind, Status: holds, ObservedGeneration: generation,
			LastProbeTime: now, LastTransitionTime: now, Reason: f.Reason, Message: f.Message,
		}
		i := slices.IndexFunc(status.Conditions, func(o v1alpha1.YurtCoordinatorCondition) bool { return o.Type == kind })
		if i < 0 {
			status.Conditions = append(status.Conditions, condition)
			changed = true
			if tells("") {
				transitions = append(transitions, condition)
			}
			return
		}
		old := status.Conditions[i]
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		if (old.Status != condition.Status || old.Reason != condition.Reason) && tells(old.Status) {
			transitions = append(transitions, condition)
		}
		if old.Status != condition.Status || old.Reason != condition.Reason || old.Message != condition.Message ||
			old.ObservedGeneration != generation {
			status.Conditions[i], changed = condition, true
		}
	}
	known := func(was v1alpha1.ConditionStatus) bool { return was != "" }
	holds := func(f finding) v1alpha1.ConditionStatus {
		if f.Unknown {
			return v1alpha1.ConditionUnknown
		}
		return truth[f.OK]
	}
	// What is not there yet is no news when a YurtCoordinator is new; an error is.
	news := func(f finding) func(v1alpha1.ConditionStatus) bool {
		return func(was v1alpha1.ConditionStatus) bool { return known(was) || f.Reason == ReasonReconcileError }
	}
	put(v1alpha1.YurtCoordinatorPending, truth[!want.pending.OK], want.pending, func(was v1alpha1.ConditionStatus) bool {
		return known(was) || !want.pending.OK
	})
	put(v1alpha1.YurtCoordinatorCertsReady, holds(want.certs), want.certs, news(want.certs))
	put(v1alpha1.YurtCoordinatorReady, holds(want.ready), want.ready, news(want.ready))
	if want.standbys.Reason != "" {
		put(v1alpha1.YurtCoordinatorStandbysReady, truth[want.standbys.OK], want.standbys, known)
	} else if i := slices.IndexFunc(status.Conditions, func(c v1alpha1.YurtCoordinatorCondition) bool {
		return c.Type == v1alpha1.YurtCoordinatorStandbysReady
	}); i >= 0 {
		status.Conditions, changed = slices.Delete(status.Conditions, i, i+1), true
	}
	quietly := func(v1alpha1.ConditionStatus) bool { return false }
	reconciling, stalled := want.reconciling, want.stalled
	if reconciling.Reason == "" {
		reconciling = finding{Reason: want.pending.Reason, Message: "Nothing is changing."}
	}
	if stalled.Reason == "" {
		stalled = finding{Reason: ReasonNotStalled, Message: "Nothing has to be fixed first."}
	}
	put(v1alpha1.YurtCoordinatorReconciling, truth[reconciling.OK], reconciling, quietly)
	put(v1alpha1.YurtCoordinatorStalled, truth[stalled.OK], stalled, func(v1alpha1.ConditionStatus) bool {
		return stalled.Reason == ReasonBadSettings && want.pending.OK // else Pending tells of it
	})
	reported := func(o v1alpha1.YurtCoordinatorCondition) bool {
		return o.Type == v1alpha1.YurtCoordinatorKubeletsVerifiable
	}
	if want.kubelets != nil || slices.ContainsFunc(status.Conditions, reported) {
		holds, f, _ := verifiable(want.nodes, want.kubelets)
		put(v1alpha1.YurtCoordinatorKubeletsVerifiable, holds, f, func(was v1alpha1.ConditionStatus) bool {
			return holds == v1alpha1.ConditionFalse || f.Reason == ReasonKubeletsOverdue ||
				holds == v1alpha1.ConditionTrue && was == v1alpha1.ConditionFalse
		})
	}
	putFilled(&status, want.fillings, func(kind v1alpha1.YurtCoordinatorConditionType, f finding) {
		put(kind, holds(f), f, func(v1alpha1.ConditionStatus) bool { return false })
	})
	putHeld(&status, want.held, func(f finding) {
		put(v1alpha1.YurtCoordinatorEvictionsHeld, holds(f), f, quietly)
	})
	return status, changed, transitions
}

// say writes the status if it changes, and records Events about transitions.
func (r *Reconciler) say(ctx context.Context, c *v1alpha1.YurtCoordinator, want wantedStatus) error {
	r.metrics.stands(c.Name, edge.PoolName(c.Spec.NodePool), want)
	status, changed, transitions := next(c.Status, c.Generation, want, metav1.NewTime(r.cfg.Clock.Now()))
	if !changed {
		return nil
	}
	base := c.DeepCopy()
	c.Status = status
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.cfg.Client.Status().Patch(ctx, c, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("write status of YurtCoordinator %s: %w", c.Name, err)
	}
	for _, t := range transitions {
		kind := corev1.EventTypeNormal
		if bad(t) {
			kind = corev1.EventTypeWarning
		}
		r.cfg.Events.Eventf(regarding(owner{c.Name, c.UID}), nil, kind, t.Reason, "Reconcile", "%s is %s: %s",
			t.Type, strings.ToLower(string(t.Status)), t.Message)
	}
	return nil
}

// bad reports whether somebody may have to act on a condition.
func bad(c v1alpha1.YurtCoordinatorCondition) bool {
	switch c.Reason {
	case ReasonNotScheduled, ReasonNoPod, ReasonNoNode, ReasonPodNotReady, ReasonRemoving, ReasonPending,
		ReasonNoServiceAddress:
		return false // in progress
	case ReasonDeployed, ReasonIssued, ReasonServing, ReasonKubeletsKnown, ReasonUpToDate, ReasonNotStalled, ReasonAllServe:
		return false
	}
	return true
}

// told records an Event about a completed step.
func (r *Reconciler) told(_ context.Context, o owner, reason, note string, args ...any) {
	r.cfg.Events.Eventf(regarding(o), nil, corev1.EventTypeNormal, reason, "Reconcile", note, args...)
}

// regarding names the YurtCoordinator of an Event. It leaves out the resourceVersion, because the recorder merges equal Events,
// and with a resourceVersion no two would be equal.
func regarding(o owner) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "YurtCoordinator", Name: o.Name, UID: o.UID,
	}
}
