package coordinator

import (
	"cmp"
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

// turn is a pool's slot when it is decided who is changed next.
type turn struct {
	pool edge.PoolName
	slot edge.Slot
	// had is what the pool has been given; none says that it has been given nothing.
	had  shipment
	none bool
	// wants is what it is to have.
	wants shipment
	// serves says that its coordinator was made from had, and is Ready.
	serves bool
	// reachable says that the change can be carried out now: the node of the coordinator that serves, or else any of the pool's
	// nodes that has no other coordinator, could run one.
	reachable bool
	// held says that somebody wants no changes.
	held bool
}

// underWay says that the coordinator does not serve, and will be waited for.
func (t turn) underWay() bool { return !t.none && !t.serves && t.reachable && !t.held }

// decided is what a turn's pool gets in its slot.
type decided struct {
	pool  edge.PoolName
	slot  edge.Slot
	gives shipment
	// none says that it gets nothing yet.
	none bool
	// waits says that it is not yet what the pool is to have.
	waits bool
}

// decide returns what each pool is given now, and when to look at that again; zero means when something has changed.
//
// What has no coordinator yet gets its own at once, and a standby once those of the slots below it serve. One that does not
// serve is changed at once, too: nothing is lost by it, and it may be the cure. One that serves waits until fewer than a part of
// all are under way, and none of its own pool: a pool with a standby is never without a coordinator for a change. Standbys are
// changed first, so what is bad shows there. Under way are those whose coordinator does not serve though some node could run it;
// those that are held are not waited for.
func decide(all []turn) (gives []decided, again time.Duration) {
	soon := func(after time.Duration) {
		if again == 0 || after < again {
			again = after
		}
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b turn) int {
		return cmp.Or(strings.Compare(string(a.pool), string(b.pool)), cmp.Compare(b.slot, a.slot))
	})
	may := max(1, len(all)/part)
	busy := make(map[edge.PoolName]bool)      // has a coordinator that is under way
	down := make(map[edge.PoolName]edge.Slot) // its lowest slot whose coordinator does not serve
	for _, t := range all {
		if t.underWay() {
			may--
			soon(lookAgain)
			busy[t.pool] = true
		}
		if !t.serves {
			down[t.pool] = t.slot
		}
	}
	for _, t := range all {
		d := decided{pool: t.pool, slot: t.slot, gives: t.wants}
		switch {
		case t.none && down[t.pool] < t.slot:
			d.gives, d.none, d.waits = shipment{}, true, true
			soon(lookAgain)
		case !t.none && t.had != t.wants:
			d.waits = t.held || !t.reachable || t.serves && (may <= 0 || busy[t.pool])
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
				busy[t.pool] = true
				soon(lookAgain)
			}
		}
		gives = append(gives, d)
	}
	return gives, again
}

// turnOf returns the turn of a pool's slot.
func turnOf(pool edge.PoolName, slot edge.Slot, had shipment, known bool, wants shipment, v view) turn {
	pod := v.crew.current[slot]
	t := turn{pool: pool, slot: slot, had: had, none: !known, wants: wants, held: v.settings.held(), serves: serves(pod, had)}
	t.reachable = slices.ContainsFunc(v.nodes, func(n corev1.Node) bool {
		return isPlace(&n) && !v.crew.taken(n.Name, slot) && (!t.serves || n.Name == pod.Spec.NodeName)
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
	case t.none && t.slot > 0:
		return is(ReasonWaitsItsTurn, "It is created once the coordinators of lower slots serve.")
	case t.none:
		return is(ReasonReplacing, "Its workload does not exist yet.")
	case t.had == t.wants && t.wants.made(pod):
		return finding{Reason: ReasonUpToDate, Message: "It runs with its version and its settings."}
	case t.had == t.wants:
		return is(ReasonReplacing, "Its Deployment is replacing its Pod. If this lasts, see the YurtAppSet "+
			"kube-system/"+t.slot.App()+".")
	case t.held:
		return is(ReasonPaused, "It stays as it is until its settings are corrected, or no longer paused.")
	case !t.reachable:
		return is(ReasonUnreachable, "It stays as it is until its node is Ready and the cloud hears from it.")
	}
	return is(ReasonWaitsItsTurn, "It stays as it is until enough of the others are Ready: a tenth of all changes "+
		"at a time, and one in a pool.")
}
