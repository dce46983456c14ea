package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

// Coordinators get a change a few at a time, whether it comes from settings, from a version or from a new coordinator-controller.
// While a site's coordinator restarts, nobody takes its heartbeats; and a bad change must not reach all sites. See
// docs/adr/0060-coordinator-rollouts.md.

// reachedAgain is how soon to look again for nodes that are reached again, before jitter.
const reachedAgain = 15 * time.Second

// Rollout says how a change reaches all coordinators.
type Rollout struct {
	// MaxUnavailable is how many coordinators may be under way at a time: a number, or a share of all such as 10%; at least one.
	// A coordinator is under way until it has served for Settle. Zero means DefaultMaxUnavailable.
	MaxUnavailable intstr.IntOrString
	// Settle is how long a coordinator must have served without a break before it is no longer under way.
	Settle time.Duration
	// PullTimeout is how long a node may take to pull the image of its coming coordinator. Zero means that the image is not
	// pulled beforehand.
	PullTimeout time.Duration
}

// DefaultMaxUnavailable is the share of all coordinators that may be under way at a time.
const DefaultMaxUnavailable = "10%"

// check says what is wrong with it.
func (r Rollout) check() error {
	if n, err := r.resolved(100); err != nil || n < 1 || r.MaxUnavailable.Type == intstr.String && n > 100 {
		return fmt.Errorf("at most %s coordinators are to be under way at a time: give a number from 1, or a share up to 100%%",
			r.MaxUnavailable.String())
	}
	if r.Settle < 0 || r.PullTimeout < 0 {
		return fmt.Errorf("coordinators are to settle for %v, and have %v for a pull: use 0 or more", r.Settle, r.PullTimeout)
	}
	return nil
}

// CheckRollout says what is wrong with a Rollout; nil means that it can be used.
func CheckRollout(r Rollout) error { return r.completed().check() }

func (r Rollout) completed() Rollout {
	if r.MaxUnavailable == (intstr.IntOrString{}) {
		r.MaxUnavailable = intstr.FromString(DefaultMaxUnavailable)
	}
	return r
}

func (r Rollout) resolved(all int) (int, error) {
	return intstr.GetScaledValueFromIntOrPercent(&r.MaxUnavailable, all, false)
}

// most returns how many of so many coordinators may be under way at a time.
func (r Rollout) most(all int) int {
	n, err := r.resolved(all)
	if err != nil { // see check
		return 1
	}
	return max(1, n)
}

// turn is a pool's slot when it is decided who is changed next.
type turn struct {
	pool edge.PoolName
	slot edge.Slot
	// owner is the pool's YurtCoordinator.
	owner owner
	// had is what the pool has been given; none says that it has been given nothing.
	had  shipment
	none bool
	// wants is what it is to have, and made what this program makes for its order: another one if it keeps what it had.
	wants, made shipment
	order       order
	// canary says that it is changed before those that are none.
	canary bool
	// serves says that its coordinator was made from had, and is Ready; settled that it has been so for long enough.
	serves, settled bool
	// reachable says that the change can be carried out now. If the coordinator serves, its own node could run one. Otherwise
	// some node of the pool could that has no other coordinator.
	reachable bool
	// held says that somebody wants no changes.
	held bool
	// coming is how far the node is that is to run it next, where it serves and is to be changed.
	coming coming
	// trouble is why it does not serve though it should by now; empty means that nothing is known to be wrong.
	trouble string
}

// awaited says that others may have to wait for it.
func (t turn) awaited() bool { return t.reachable && !t.held }

// underWay says that the coordinator does not serve, or not for long enough yet, and will be waited for.
func (t turn) underWay() bool { return !t.none && !t.settled && t.awaited() }

// done says that it has what it wants, and is well with it.
func (t turn) done() bool { return !t.none && t.had == t.wants && t.settled }

// changes says that one that serves is to be replaced.
func (t turn) changes() bool { return t.serves && !t.none && t.had != t.wants }

// prepares says that the image of what it wants is on its way to a node, or is there, or does not come.
func (t turn) prepares() bool {
	return t.changes() && t.awaited() && t.coming.state != notBegun && t.coming.state != nowhere
}

// stuck is why it does not get on; empty means that nothing is known to be wrong.
func (t turn) stuck() string {
	if t.changes() {
		return t.coming.trouble()
	}
	return t.trouble
}

// key names a turn.
type key struct {
	pool edge.PoolName
	slot edge.Slot
}

func (t turn) key() key { return key{t.pool, t.slot} }

// decided is what a turn's pool gets in its slot.
type decided struct {
	turn
	gives shipment
	// none says that it gets nothing yet.
	none bool
	// waits says that it is not yet what the pool is to have.
	waits bool
	// pulls says that the image of what it is to have is to be on the node to come.
	pulls bool
}

// moves says that a coordinator that serves is replaced by this.
func (d decided) moves() bool { return d.serves && !d.turn.none && d.gives != d.had }

// decision is what is done for all pools now.
type decision struct {
	// gives is in the order of pools, and for each from its highest slot on.
	gives []decided
	// stops says of pools why the others wait for them, where somebody must mend something.
	stops map[edge.PoolName]string
	// again is when to decide anew; zero means when something has changed.
	again time.Duration
}

// decide returns what each pool gets now. most is how many coordinators may be under way at a time.
//
// A slot without a coordinator gets one at once, but a standby only once those in the slots below it serve.
//
// A coordinator that serves is changed in its turn. Canaries come first: nobody else is changed until all of them have the change
// and have settled. A shipment that has settled nowhere yet is tried by one coordinator only, canary or not. The image is on the
// next node before the old coordinator ends; without it nothing is changed. A pool changes one coordinator at a time while its
// others serve, so a pool with a standby always has one. Standbys are changed first, so a bad change shows there.
//
// A coordinator that does not serve has nothing to lose by a change. If its present shipment has settled nowhere, it does not
// wait for canaries, because the change may be the cure. If that shipment has settled elsewhere, the trouble is its own, and it
// must not try what canaries have not tried.
//
// Nobody waits for coordinators that are held or can't be reached.
func decide(all []turn, most int) (is decision) {
	soon := func(after time.Duration) {
		if is.again == 0 || after < is.again {
			is.again = after
		}
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b turn) int {
		return cmp.Or(canariesFirst(a, b), strings.Compare(string(a.pool), string(b.pool)), cmp.Compare(b.slot, a.slot))
	})
	s := survey(all, most)
	for _, t := range all {
		d := decided{turn: t, gives: t.wants}
		switch {
		case t.none && s.down[t.pool] < t.slot:
			d.gives, d.none, d.waits = shipment{}, true, true
			soon(lookAgain)
		case !t.none && t.had != t.wants:
			if s.turnOf(t, &d); d.waits {
				d.gives = t.had
			}
			switch {
			case t.awaited():
				soon(lookAgain)
			case !t.held:
				soon(reachedAgain)
			}
		}
		if t.underWay() {
			soon(lookAgain)
		}
		is.gives = append(is.gives, d)
	}
	slices.SortStableFunc(is.gives, func(a, b decided) int { return strings.Compare(string(a.pool), string(b.pool)) })
	is.stops = s.stops(all)
	return is
}

func canariesFirst(a, b turn) int {
	rank := func(t turn) int {
		if t.canary {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// surveyed is what is known of all turns before one is decided, and changes with each decision.
type surveyed struct {
	// may is how many more may be under way, pulls how many more may have an image brought.
	may, pulls int
	// proven has the shipments that some coordinator has settled with. triers has, for every other shipment, the coordinator that
	// tries it or prepares to.
	proven map[shipment]bool
	triers map[shipment]key
	// canaries says that a canary is still to be changed, or is not settled.
	canaries bool
	// busy pools have a coordinator that is under way; down is the lowest slot of a pool whose coordinator does not serve.
	busy map[edge.PoolName]bool
	down map[edge.PoolName]edge.Slot
	// What somebody waits for: canaries, others that try the same, or that fewer are under way.
	waitCanaries, waitOthers bool
	waitTried                map[shipment]bool
	// moves says that one that serves is changed now.
	moves bool
}

func survey(all []turn, most int) *surveyed {
	s := &surveyed{
		may: most, pulls: most, proven: map[shipment]bool{}, triers: map[shipment]key{}, busy: map[edge.PoolName]bool{},
		down: map[edge.PoolName]edge.Slot{}, waitTried: map[shipment]bool{},
	}
	for _, t := range all {
		if t.settled && !t.none {
			s.proven[t.had] = true
		}
		if t.underWay() {
			s.may--
			s.tries(t, t.had)
			s.busy[t.pool] = true
		}
		if t.coming.state == pulling && t.prepares() {
			s.pulls--
		}
		if !t.serves {
			s.down[t.pool] = t.slot
		}
		if t.canary && t.awaited() && !t.done() {
			s.canaries = true
		}
	}
	for _, t := range all {
		if t.prepares() {
			s.tries(t, t.wants)
		}
	}
	return s
}

// tries notes who tries what, if nobody does.
func (s *surveyed) tries(t turn, what shipment) {
	if _, somebody := s.triers[what]; !somebody {
		s.triers[what] = t.key()
	}
}

// turnOf decides about one that is to be changed.
func (s *surveyed) turnOf(t turn, d *decided) {
	d.waits = true
	if !t.awaited() {
		return
	}
	trier, tried := s.triers[t.wants]
	switch {
	case !t.serves && !s.proven[t.had]: // it may be the cure
	case s.canaries && !t.canary:
		s.waitCanaries = true
		return
	case !s.proven[t.wants] && tried && trier != t.key():
		s.waitTried[t.wants] = true
		return
	}
	if !t.serves {
		d.waits = false
		s.tries(t, t.wants)
		return
	}
	if s.busy[t.pool] || t.coming.state == nowhere {
		return
	}
	switch {
	case t.coming.state == ready && s.may > 0:
		d.waits, d.pulls = false, true
		s.may--
		s.moves = true
	case t.coming.state == ready:
		d.pulls, s.waitOthers = true, true
		return
	case t.coming.state == notBegun && s.pulls > 0:
		d.pulls = true
		s.pulls--
	case t.coming.state == notBegun:
		return
	default:
		d.pulls = true
	}
	s.busy[t.pool] = true
	s.tries(t, t.wants)
}

// stops returns the pools that others wait for, where nothing gets on by itself, and why.
func (s *surveyed) stops(all []turn) map[edge.PoolName]string {
	stops := map[edge.PoolName]string{}
	full := s.waitOthers && !s.moves && !slices.ContainsFunc(all, func(t turn) bool { return t.underWay() && t.stuck() == "" })
	for _, t := range all {
		tries := func(what shipment) bool { return s.waitTried[what] && s.triers[what] == t.key() }
		holds := s.waitCanaries && t.canary && t.awaited() && !t.done() || full && t.underWay() ||
			t.underWay() && tries(t.had) || t.prepares() && tries(t.wants)
		if why := t.stuck(); holds && why != "" && stops[t.pool] == "" {
			stops[t.pool] = why
		}
	}
	return stops
}

// holding is what a pool has been given in a slot, and what is made for it now.
type holding struct {
	had   shipment
	known bool
	casts casts
	made  shipment // by this program, for the order
	order order
}

// turnOf returns the turn of a pool's slot.
func (r *Reconciler) turnOf(v view, slot edge.Slot, g holding) turn {
	pod, now := v.crew.current[slot], r.cfg.Clock.Now()
	had, wants := g.had, g.made
	if g.known {
		wants = g.casts.keeps(v.settings.Release != "", had, g.order, g.made)
	}
	t := turn{
		pool: v.census.Pool, slot: slot, had: had, none: !g.known, wants: wants, made: g.made, order: g.order,
		held: v.settings.held(), serves: serves(pod, had), canary: ptr.Deref(v.settings.Canary, false),
	}
	t.settled = t.serves && v.settledIn(slot, now.Add(-r.cfg.Rollout.Settle))
	t.reachable = slices.ContainsFunc(v.nodes, func(n corev1.Node) bool {
		return isPlace(&n) && !v.crew.taken(n.Name, slot) && (!t.serves || n.Name == pod.Spec.NodeName)
	})
	if t.serves && had != wants {
		t.coming = r.cfg.comingTo(v, slot, wants)
	}
	if !t.serves && !t.none && had.made(pod) {
		t.trouble = troubleOf(pod, now)
	}
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

// patience is how long a coordinator may take from its Pod's creation until it serves, before that counts as trouble.
const patience = 5 * time.Minute

// troubleOf says why a Pod does not serve, if it is not only on its way.
func troubleOf(pod *corev1.Pod, now time.Time) string {
	if why := waitsFor(pod); why != "" {
		return fmt.Sprintf("its Pod %s: %s", pod.Name, why)
	}
	if now.Sub(pod.CreationTimestamp.Time) < patience {
		return ""
	}
	return fmt.Sprintf("its Pod %s is not Ready since it was made at %s", pod.Name,
		pod.CreationTimestamp.UTC().Format("2006-01-02 15:04")+" UTC")
}

// maxSaid bounds what is passed on of what kubelet says, in bytes.
const maxSaid = 300

// waitsFor says why a Pod's container can't run, by its kubelet's word; empty means that nothing is wrong.
func waitsFor(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		text := w.Reason
		if w.Message != "" {
			text += ": " + w.Message
		}
		return short(text)
	}
	return ""
}

// Reasons of the condition Reconciling.
const (
	// ReasonUpToDate: the coordinator was made as its version and its settings say.
	ReasonUpToDate = "UpToDate"
	// ReasonWaitsItsTurn: others are changed first.
	ReasonWaitsItsTurn = "WaitsItsTurn"
	// ReasonPulling: the image comes to the node that is to run it.
	ReasonPulling = "Pulling"
	// ReasonNotPulled: that node does not get the image.
	ReasonNotPulled = "ImageNotPulled"
	// ReasonNoNodeToCome: none of the pool's nodes could run it as it is to be.
	ReasonNoNodeToCome = "NoNodeToCome"
	// ReasonReplacing: its Deployment is to replace its Pod.
	ReasonReplacing = "Replacing"
	// ReasonPaused: somebody holds changes.
	ReasonPaused = "Paused"
	// ReasonUnreachable: its node can't be reached, or is not Ready: it goes on as it is until that is over.
	ReasonUnreachable = "Unreachable"
	// ReasonNotStalled is one of the condition Stalled: nothing is known that somebody must mend first.
	ReasonNotStalled = "NotStalled"
	// ReasonRolloutStopped is one of the condition Stalled: other coordinators are not changed since this one is not well.
	ReasonRolloutStopped = "RolloutStopped"
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
	switch why := t.coming.trouble(); {
	case t.coming.state == nowhere:
		return is(ReasonNoNodeToCome, "It stays as it is: "+why+".")
	case why != "":
		return is(ReasonNotPulled, "It stays as it is, and the pull is tried again: "+why+".")
	case t.coming.state == pulling:
		return is(ReasonPulling, "It stays as it is until its image is on node "+string(t.coming.node)+".")
	}
	return is(ReasonWaitsItsTurn, "Others change first, and it runs as before: first canaries or one that tries the change, "+
		"then a few at a time. What stops them has the condition Stalled.")
}
