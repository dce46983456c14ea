package coordinator

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// A change of what coordinators run, by settings, by a version or by a new coordinator-controller, is given to a part of them
// at a time: a site whose coordinator is gone for a moment has no one to leave its heartbeats with, and a change that is bad
// must not reach all.

// part is the share of all coordinators that may be under way at a time, one at least.
const part = 10

// reachedAgain is how soon to look again for nodes that are reached again, before jitter.
const reachedAgain = 15 * time.Second

// turn is a pool when it is decided who is changed next.
type turn struct {
	pool edge.PoolName
	// had is what the pool has been given; none says that it has been given nothing.
	had  shipment
	none bool
	// wants is what it is to have.
	wants shipment
	// serves says that its coordinator was made from had, and is Ready.
	serves bool
	// reachable says that the change can be carried out now: the node of the coordinator that serves, or else any of the pool's
	// nodes, could run one.
	reachable bool
	// held says that somebody wants no changes.
	held bool
}

// decided is what a turn's pool gets.
type decided struct {
	pool  edge.PoolName
	gives shipment
	// waits says that it is not yet what the pool is to have.
	waits bool
}

// decide returns what each pool is given now, and when to look at that again; zero means when something has changed.
//
// What has no coordinator yet gets its own at once. One that does not serve is changed at once, too: nothing is lost by it, and
// it may be the cure. One that serves waits until fewer than a part of all are under way. Under way are those whose coordinator
// does not serve though some node could run it; those that are held are not waited for.
func decide(all []turn) (gives []decided, again time.Duration) {
	soon := func(after time.Duration) {
		if again == 0 || after < again {
			again = after
		}
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b turn) int { return strings.Compare(string(a.pool), string(b.pool)) })
	may := max(1, len(all)/part)
	for _, t := range all {
		if !t.none && !t.serves && t.reachable && !t.held {
			may--
			soon(lookAgain)
		}
	}
	for _, t := range all {
		d := decided{pool: t.pool, gives: t.wants}
		if !t.none && t.had != t.wants {
			d.waits = t.held || !t.reachable || t.serves && may <= 0
			switch {
			case d.waits:
				d.gives = t.had
				if !t.held && t.reachable {
					soon(lookAgain)
				} else if !t.held {
					soon(reachedAgain)
				}
			case t.serves:
				may--
				soon(lookAgain)
			}
		}
		gives = append(gives, d)
	}
	return gives, again
}

// turnOf returns a pool's turn.
func turnOf(pool edge.PoolName, had shipment, known bool, wants shipment, v view) turn {
	t := turn{pool: pool, had: had, none: !known, wants: wants, held: v.settings.held()}
	t.serves = serves(v.crew.current, had)
	t.reachable = slices.ContainsFunc(v.nodes, func(n corev1.Node) bool {
		return isPlace(&n) && (!t.serves || n.Name == v.crew.current.Spec.NodeName)
	})
	return t
}

// serves reports whether a Pod was made from a shipment, and is Ready.
func serves(pod *corev1.Pod, s shipment) bool {
	if !s.made(pod) || pod.Spec.NodeName == "" {
		return false
	}
	c := podCondition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Reasons of the condition Reconciling.
const (
	// ReasonUpToDate: the coordinator was made as its version and its settings say.
	ReasonUpToDate = "UpToDate"
	// ReasonWaitsItsTurn: others are changed first.
	ReasonWaitsItsTurn = "WaitsItsTurn"
	// ReasonReplacing: its Deployment is to replace its Pod.
	ReasonReplacing = "Replacing"
	// ReasonPaused: somebody holds changes.
	ReasonPaused = "Paused"
	// ReasonUnreachable: its node can't be reached, or is not Ready: it goes on as it is until that is over.
	ReasonUnreachable = "Unreachable"
	// ReasonNotStalled is one of the condition Stalled: nothing is known that somebody must mend first.
	ReasonNotStalled = "NotStalled"
)

// progress returns the condition Reconciling of a coordinator that must run.
func progress(t turn, pod *corev1.Pod) finding {
	is := func(reason, message string) finding { return finding{OK: true, Reason: reason, Message: message} }
	switch {
	case t.none:
		return is(ReasonReplacing, "Its workload is not made yet.")
	case t.had == t.wants && t.wants.made(pod):
		return finding{Reason: ReasonUpToDate, Message: "It was made as its version and its settings say."}
	case t.had == t.wants:
		return is(ReasonReplacing, "Its Deployment is to replace its Pod. If this lasts, see the YurtAppSet "+
			"kube-system/yurt-coordinator.")
	case t.held:
		return is(ReasonPaused, "It goes on as it is until its settings are mended, or no longer say paused.")
	case !t.reachable:
		return is(ReasonUnreachable, "It goes on as it is until its node is Ready and reached from the cloud.")
	}
	return is(ReasonWaitsItsTurn, "It goes on as it is until enough of the others are Ready: a tenth of all is changed "+
		"at a time.")
}
