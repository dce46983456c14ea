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
	"yurtcoordinator/internal/cloud/appset"
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
	// ReasonNodeLeftPool: the Pod's node is not of the pool any more.
	ReasonNodeLeftPool = "NodeLeftPool"
	// ReasonPodNotReady: the Pod has a node, but is not ready.
	ReasonPodNotReady = "PodNotReady"
	// ReasonRemoving: the YurtCoordinator is being deleted.
	ReasonRemoving = "Removing"
)

// readiness returns the condition Ready of a coordinator with this Pod. left says how its node has left the pool, if it has.
func readiness(pod *corev1.Pod, slot edge.Slot, left string) finding {
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
	if left != "" {
		return finding{Reason: ReasonNodeLeftPool, Message: fmt.Sprintf("Pod %s runs on, but node %s %s. "+
			"The Pod is made anew on a node of the pool as soon as one that can run it is heard from.",
			pod.Name, pod.Spec.NodeName, left)}
	}
	if !serves(pod) {
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

// row is one condition of a status. A row without a reason leaves the condition as it is.
type row struct {
	kind v1alpha1.YurtCoordinatorConditionType
	finding
	// begins puts the condition even if it is not there yet.
	begins bool
	// tells reports whether a change deserves an Event; nil means that none does. was is the former status; empty means none.
	tells func(was v1alpha1.ConditionStatus) bool
}

// rows returns the conditions of a status.
func (w wantedStatus) rows() []row {
	pending, reconciling, stalled := w.pending, w.reconciling, w.stalled
	pending.OK = !pending.OK
	if reconciling.Reason == "" {
		reconciling = finding{Reason: w.pending.Reason, Message: "Nothing is changing."}
	}
	if stalled.Reason == "" {
		stalled = finding{Reason: ReasonNotStalled, Message: "Nothing has to be fixed first."}
	}
	holds, verified, _ := verifiable(w.nodes, w.kubelets)
	verified.Unknown = holds == v1alpha1.ConditionUnknown
	complete, current := w.fillings.filled()
	known := func(was v1alpha1.ConditionStatus) bool { return was != "" }
	// What is not there yet is no news when a YurtCoordinator is new; an error is.
	news := func(f finding) func(v1alpha1.ConditionStatus) bool {
		return func(was v1alpha1.ConditionStatus) bool { return known(was) || f.Reason == ReasonReconcileError }
	}
	return []row{
		{v1alpha1.YurtCoordinatorPending, pending, true, func(was v1alpha1.ConditionStatus) bool {
			return known(was) || pending.OK
		}},
		{v1alpha1.YurtCoordinatorCertsReady, w.certs, true, news(w.certs)},
		{v1alpha1.YurtCoordinatorReady, w.ready, true, news(w.ready)},
		{v1alpha1.YurtCoordinatorStandbysReady, w.standbys, true, known},
		{v1alpha1.YurtCoordinatorReconciling, reconciling, true, nil},
		{v1alpha1.YurtCoordinatorStalled, stalled, true, func(v1alpha1.ConditionStatus) bool {
			// Otherwise Pending tells of it.
			return stalled.Reason == ReasonBadSettings && w.pending.OK || stalled.Reason == appset.ReasonRemovalWaits
		}},
		{v1alpha1.YurtCoordinatorKubeletsVerifiable, verified, w.kubelets != nil, func(was v1alpha1.ConditionStatus) bool {
			return holds == v1alpha1.ConditionFalse || verified.Reason == ReasonKubeletsOverdue ||
				holds == v1alpha1.ConditionTrue && was == v1alpha1.ConditionFalse
		}},
		{v1alpha1.YurtCoordinatorResourcesComplete, complete, w.fillings != nil, nil},
		{v1alpha1.YurtCoordinatorResourcesCurrent, current, w.fillings != nil, nil},
		{v1alpha1.YurtCoordinatorEvictionsHeld, w.held, w.held.OK, nil},
	}
}

// next returns the new status, whether it differs from the former one, and the changes of conditions that deserve an Event. If
// only the times of a condition would change, the condition stays as it is.
func next(was v1alpha1.YurtCoordinatorStatus, generation int64, want wantedStatus, now metav1.Time) (
	status v1alpha1.YurtCoordinatorStatus, changed bool, transitions []v1alpha1.YurtCoordinatorCondition,
) {
	status = *was.DeepCopy()
	status.ObservedGeneration, status.NodeName, status.DelegatedNodes = generation, want.node, want.delegated
	status.OutsidePoolNodes, status.Settings, status.Coordinators = want.outside, want.from, want.coordinators
	for _, r := range want.rows() {
		i := slices.IndexFunc(status.Conditions, func(c v1alpha1.YurtCoordinatorCondition) bool { return c.Type == r.kind })
		if r.Reason == "" || i < 0 && !r.begins {
			continue
		}
		if i < 0 {
			i, status.Conditions = len(status.Conditions), append(status.Conditions, v1alpha1.YurtCoordinatorCondition{})
		}
		old, is := status.Conditions[i], v1alpha1.YurtCoordinatorCondition{
			Type: r.kind, Status: r.status(), ObservedGeneration: generation,
			LastProbeTime: now, LastTransitionTime: now, Reason: r.Reason, Message: r.Message,
		}
		if old.Status == is.Status {
			is.LastTransitionTime = old.LastTransitionTime
		}
		turned := old.Status != is.Status || old.Reason != is.Reason
		if turned && r.tells != nil && r.tells(old.Status) {
			transitions = append(transitions, is)
		}
		if turned || old.Message != is.Message || old.ObservedGeneration != generation {
			status.Conditions[i] = is
		}
	}
	if want.standbys.Reason == "" {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1alpha1.YurtCoordinatorCondition) bool {
			return c.Type == v1alpha1.YurtCoordinatorStandbysReady
		})
	}
	return status, !equality.Semantic.DeepEqual(was, status), transitions
}

// status returns the status of a condition.
func (f finding) status() v1alpha1.ConditionStatus {
	switch {
	case f.Unknown:
		return v1alpha1.ConditionUnknown
	case f.OK:
		return v1alpha1.ConditionTrue
	}
	return v1alpha1.ConditionFalse
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
