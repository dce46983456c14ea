package appset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

const (
	// workloadsMax is how many pools' workloads a status lists.
	workloadsMax = 500

	// messageMax bounds a status's message about one pool, and a condition's about all.
	messageMax = 512
)

// ReasonRolloutStopped is the reason of the condition Stalled while a pool that failed stops the rollout.
const ReasonRolloutStopped = "RolloutStopped"

// Live is the part of an existing workload that matters here.
type Live struct {
	Kind, Name, Pool string
	UID              types.UID
	Generation       int64
	Deleting         bool
	// Observed says that the workload's controller has seen its newest spec.
	Observed bool
	// Replicas counts the wanted replicas, All the existing ones, Ready the ready ones, Available those that have been ready for
	// long enough, and Updated those of the newest revision.
	Replicas, All, Ready, Available, Updated int32
	// Paused says that somebody has paused the Deployment.
	Paused bool
	// Complete says that all Pods of the newest revision have become available. First says that it is the first revision.
	// Failure is why its Pods have not become available in time.
	Complete, First bool
	Failure         string
	// Pods is the PodsHash that the workload was written with.
	Pods string

	had      Had
	meta     client.Object
	selector *metav1.LabelSelector
}

func liveOf(o client.Object) *Live {
	l := &Live{
		Name: o.GetName(), Pool: o.GetLabels()[LabelPoolName], UID: o.GetUID(), Generation: o.GetGeneration(),
		Deleting: o.GetDeletionTimestamp() != nil, meta: o,
		Pods: o.GetAnnotations()[AnnotationPods],
		had: Had{
			Name: o.GetName(), Revision: o.GetLabels()[LabelRevision],
			Nodes: strings.Fields(o.GetAnnotations()[AnnotationNodes]),
		},
	}
	hasHad := func(pods *corev1.PodTemplateSpec) {
		l.had.PodRevision = pods.Labels[LabelRevision]
	}
	switch w := o.(type) {
	case *appsv1.Deployment:
		s := w.Status
		hasHad(&w.Spec.Template)
		l.Kind, l.Replicas, l.Observed = "Deployment", ptr.Deref(w.Spec.Replicas, 1), s.ObservedGeneration >= w.Generation
		l.All, l.Ready, l.Available, l.Updated = s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas
		l.Paused, l.selector = w.Spec.Paused, w.Spec.Selector
		l.progress(w)
	case *appsv1.StatefulSet:
		s := w.Status
		hasHad(&w.Spec.Template)
		l.Kind, l.Replicas, l.Observed = "StatefulSet", ptr.Deref(w.Spec.Replicas, 1), s.ObservedGeneration >= w.Generation
		l.All, l.Ready, l.Available, l.Updated = s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas
		l.Complete, l.selector = s.CurrentRevision == s.UpdateRevision, w.Spec.Selector
	default:
		panic(fmt.Sprintf("a workload is no %T", o))
	}
	return l
}

// progress reads how far a Deployment is from what its controller says.
func (l *Live) progress(d *appsv1.Deployment) {
	// The annotation is Kubernetes' count of the Deployment's revisions.
	revision := d.Annotations["deployment.kubernetes.io/revision"]
	l.First = d.Status.ObservedGeneration == 0 || l.Observed && (revision == "" || revision == "1")
	for _, c := range d.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing {
			continue
		}
		l.Complete = c.Reason == "NewReplicaSetAvailable"
		if c.Status == corev1.ConditionFalse {
			l.Failure = cmp.Or(c.Message, c.Reason)
		}
	}
}

// health returns the state of a workload; nil is Fresh.
func (l *Live) health() Health {
	switch {
	case l == nil || l.Deleting:
		return Fresh
	case l.updated() && l.Available >= l.Replicas:
		return Settled
	case l.Observed && l.Complete:
		return Down
	case l.First:
		return Fresh
	case l.Observed && l.Failure != "":
		return Failed
	}
	return UnderWay
}

func (l *Live) ready() bool {
	return l != nil && !l.Deleting && l.Observed && l.Ready >= l.Replicas
}

func (l *Live) updated() bool {
	return l != nil && !l.Deleting && l.Observed && l.Updated == l.Replicas && l.All == l.Replicas
}

// Outcome is the result for one pool.
type Outcome struct {
	Pool, Name string
	// Live is our workload; nil means none.
	Live *Live
	// Message says what is wrong; empty means that the workload is as wanted.
	Message string
}

// World is the input of a status.
type World struct {
	Outcomes []Outcome // sorted by the pools' names
	Missing  []string  // named pools that do not exist
	BadPools error     // a selector that can't be used; then nothing else is known
	Leaving  []string  // workloads that are no longer wanted, and are being deleted
	Held     Held      // workloads that are no longer wanted, and stay for now
	Revision string
	// Waiting are the pools whose workloads are still to be changed.
	Waiting map[string]bool
	// Stopped says which pool stops the rollout, and why; empty means that none does.
	Stopped string
}

// Judge returns the status of a YurtAppSet.
func Judge(set *v1beta1.YurtAppSet, w *World, now metav1.Time) v1beta1.YurtAppSetStatus {
	s := v1beta1.YurtAppSetStatus{
		ObservedGeneration: set.Generation, CollisionCount: set.Status.CollisionCount, CurrentRevision: w.Revision,
		Conditions: slices.Clone(set.Status.Conditions),
	}
	if w.BadPools != nil {
		s.ReadyWorkloads, s.UpdatedWorkloads = set.Status.ReadyWorkloads, set.Status.UpdatedWorkloads
		s.TotalWorkloads, s.Workloads = set.Status.TotalWorkloads, set.Status.Workloads
		note(&s, set, now, v1beta1.AppSetPoolFound, "InvalidSelector",
			fmt.Sprintf("nothing changes until this is fixed: %v", w.BadPools))
		note(&s, set, now, v1beta1.AppSetReady, "InvalidSelector", "see PoolFound")
		put(&s, set, now, v1beta1.AppSetStalled, corev1.ConditionTrue, "InvalidSelector", "see PoolFound")
		return s
	}
	var absent, wrong, unready []string
	for _, o := range w.Outcomes {
		row := v1beta1.WorkloadStatus{Pool: o.Pool, Name: o.Name, Message: o.Message}
		if o.Live == nil {
			absent = append(absent, o.Pool)
		} else {
			s.TotalWorkloads++
			row.Replicas, row.ReadyReplicas, row.UpdatedReplicas = o.Live.Replicas, o.Live.Ready, o.Live.Updated
		}
		if o.Message != "" {
			wrong = append(wrong, o.Pool)
		}
		if o.Live.ready() {
			s.ReadyWorkloads++
		} else {
			unready = append(unready, o.Pool)
		}
		if o.Live.updated() && o.Message == "" && !w.Waiting[o.Pool] {
			s.UpdatedWorkloads++
		}
		if len(s.Workloads) < workloadsMax {
			s.Workloads = append(s.Workloads, row)
		}
	}
	found := ""
	if len(w.Outcomes) == 0 {
		found = "NoPool"
	}
	note(&s, set, now, v1beta1.AppSetPoolFound, found, poolsMessage(w))
	note(&s, set, now, v1beta1.AppSetAppDispatched, when(absent, "WorkloadMissing"), about(absent, w, "no workload in"))
	note(&s, set, now, v1beta1.AppSetAppUpdated, when(wrong, "NotAsWanted"), about(wrong, w, "not as wanted in"))
	stays, held := when(w.Leaving, "Deleting"), about(w.Leaving, nil, "still there:")
	if len(w.Held.Objects) > 0 {
		stays, held = ReasonRemovalWaits, w.Held.Message
	}
	note(&s, set, now, v1beta1.AppSetAppDeleted, stays, held)
	note(&s, set, now, v1beta1.AppSetAppReady, when(unready, "NotReady"), about(unready, nil, "not ready in"))
	against, message := "", ""
	for _, c := range s.Conditions {
		if own := c.Type == v1beta1.AppSetReady || c.Type == v1beta1.AppSetStalled || c.Type == v1beta1.AppSetPoolFound; !own &&
			c.Status != corev1.ConditionTrue && against == "" {
			against, message = c.Reason, fmt.Sprintf("%s: %s", c.Type, c.Message)
		}
	}
	if outdated := len(w.Outcomes) - int(s.UpdatedWorkloads); against == "" && outdated > 0 {
		against, message = "Updating", edge.Count(outdated, "workload has", "workloads have")+
			" Pods that are not of the newest revision"
		if r := set.Spec.Rollout; r != nil && r.Paused {
			against, message = "Paused", message+", and spec.rollout.paused is true"
		}
	}
	note(&s, set, now, v1beta1.AppSetReady, against, message)
	if w.Stopped != "" {
		put(&s, set, now, v1beta1.AppSetStalled, corev1.ConditionTrue, ReasonRolloutStopped, w.Stopped)
		return s
	}
	put(&s, set, now, v1beta1.AppSetStalled, corev1.ConditionFalse, "NotStalled", "")
	return s
}

func when(names []string, reason string) string {
	if len(names) == 0 {
		return ""
	}
	return reason
}

// about names some of many, and says what is wrong with the first.
func about(names []string, w *World, what string) string {
	if len(names) == 0 {
		return ""
	}
	message := what + " " + edge.Some(names)
	if w == nil {
		return message
	}
	i := slices.IndexFunc(w.Outcomes, func(o Outcome) bool { return o.Pool == names[0] })
	if i >= 0 && w.Outcomes[i].Message != "" {
		message += "; " + names[0] + ": " + w.Outcomes[i].Message
	}
	return message
}

func poolsMessage(w *World) string {
	switch {
	case len(w.Missing) > 0:
		return "there is no NodePool " + edge.Some(w.Missing)
	case len(w.Outcomes) == 0:
		return "no NodePool is named or selected"
	default:
		return ""
	}
}

// note sets a condition: True if no reason speaks against it.
func note(s *v1beta1.YurtAppSetStatus, set *v1beta1.YurtAppSet, now metav1.Time, kind v1beta1.YurtAppSetConditionType,
	against, message string,
) {
	switch {
	case against != "":
		put(s, set, now, kind, corev1.ConditionFalse, against, message)
	case message != "":
		put(s, set, now, kind, corev1.ConditionTrue, "NotAll", message) // a named pool does not exist
	default:
		put(s, set, now, kind, corev1.ConditionTrue, "AsWanted", "")
	}
}

// put sets a condition.
func put(s *v1beta1.YurtAppSetStatus, set *v1beta1.YurtAppSet, now metav1.Time, kind v1beta1.YurtAppSetConditionType,
	is corev1.ConditionStatus, reason, message string,
) {
	next := v1beta1.YurtAppSetCondition{
		Type: kind, Status: is, ObservedGeneration: set.Generation, LastTransitionTime: now, Reason: reason,
		Message: cut(message),
	}
	i := slices.IndexFunc(s.Conditions, func(c v1beta1.YurtAppSetCondition) bool { return c.Type == kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, next)
		return
	}
	if s.Conditions[i].Status == next.Status {
		next.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = next
}

// cut shortens a message.
func cut(message string) string {
	if len(message) <= messageMax {
		return message
	}
	return strings.ToValidUTF8(message[:messageMax-3], "") + "..."
}
