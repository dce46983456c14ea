package appset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

const (
	// pullAgain is the shortest wait before the next look at what is not watched: Pods that pull, and turns of the group.
	pullAgain = 4 * time.Second
	// waitAgain is the longest wait before the next look at pools that wait: Pods are not watched.
	waitAgain = 10 * time.Minute
)

// turn is a pool of a group of YurtAppSets.
type turn struct{ namespace, group, pool string }

// rollout is one look at the rollout of a YurtAppSet.
type rollout struct {
	*Controller
	set      *v1beta1.YurtAppSet
	selected Selection
	wanted   []Wanted
	live     map[ref]*Live

	states []PoolState
	steps  []Step
	stop   int
	// nodes are those of the pools; coming are the nodes to come of pools that were looked at.
	nodes  map[string][]corev1.Node
	coming map[int]coming
	pulls  []corev1.Pod
	// taken says that another YurtAppSet of the group is writing in a pool.
	taken bool
}

// decide says what to do in each pool. It looks at the Pods only of pools whose turn it is.
func (r *rollout) decide(ctx context.Context) error {
	others, err := r.others(ctx)
	if err != nil {
		return err
	}
	r.states, r.coming = make([]PoolState, len(r.wanted)), make(map[int]coming)
	for i := range r.wanted {
		r.states[i] = r.state(&r.wanted[i])
	}
	if r.set.Spec.Rollout != nil {
		r.waitForNodes(true) // until it is known, lest a Node's change be missed
		if err := r.readNodes(ctx); err != nil {
			return err
		}
	}
	if err := r.readPulls(ctx); err != nil {
		return err
	}
	for {
		look := r.plan(others)
		if len(look) == 0 {
			r.waitForNodes(r.waits())
			return nil
		}
		for _, i := range look {
			if err := r.look(ctx, i); err != nil {
				return err
			}
		}
	}
}

// plan decides. If some pools must be looked at first, it returns them. Otherwise it takes the turns of those that change.
func (r *rollout) plan(others map[string][]otherLive) (look []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := func(i int) turn { return turn{r.set.Namespace, r.group(), r.wanted[i].Pool} }
	for i := range r.states {
		if of := r.turns[at(i)]; of != "" && of != r.set.UID && r.group() != "" {
			r.states[i].Other, r.taken = UnderWay, true
			continue
		}
		r.states[i].Other = r.worstLocked(others[r.wanted[i].Pool])
	}
	d := Decide(r.set.Spec.Rollout, r.states)
	r.steps, r.stop = d.Steps, d.Stop
	var changes []int
	for i, s := range d.Steps {
		if r.set.Spec.Rollout == nil || s == Wait || r.states[i].Current || r.states[i].Health == Fresh {
			continue
		}
		changes = append(changes, i)
		if _, looked := r.coming[i]; !looked {
			look = append(look, i)
		}
	}
	if len(look) == 0 && r.group() != "" {
		for _, i := range changes {
			if d.Steps[i] == Apply {
				r.turns[at(i)] = r.set.UID
			}
		}
	}
	return look
}

// endTurns gives back all turns of a YurtAppSet. It is called when all changes are written and remembered.
func (c *Controller) endTurns(set types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.turns, func(_ turn, of types.UID) bool { return of == set })
}

func (r *rollout) group() string {
	if r.set.Spec.Rollout == nil {
		return ""
	}
	return r.set.Spec.Rollout.Group
}

// otherLive is a workload of another YurtAppSet.
type otherLive struct {
	*Live
	set types.NamespacedName
}

// others returns the workloads of the group's other YurtAppSets by their pools.
func (r *rollout) others(ctx context.Context) (map[string][]otherLive, error) {
	all := make(map[string][]otherLive)
	if r.group() == "" {
		return all, nil
	}
	sets := &v1beta1.YurtAppSetList{}
	if err := r.cfg.Client.List(ctx, sets, client.InNamespace(r.set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the YurtAppSets of group %s: %w", r.group(), err)
	}
	for i := range sets.Items {
		other := &sets.Items[i]
		if other.UID == r.set.UID || other.Spec.Rollout == nil || other.Spec.Rollout.Group != r.group() {
			continue
		}
		live, err := r.Controller.live(ctx, other)
		if err != nil {
			return nil, err
		}
		for _, l := range live {
			all[l.Pool] = append(all[l.Pool], otherLive{l, client.ObjectKeyFromObject(other)})
		}
	}
	return all, nil
}

// worstLocked returns the worst state among a pool's workloads of the group's other YurtAppSets. A workload counts as under way
// if this controller has written it and the cache does not show that yet.
func (r *rollout) worstLocked(all []otherLive) (worst Health) {
	order := []Health{"", Settled, Fresh, Down, UnderWay, Failed}
	for _, l := range all {
		is := l.health()
		if m := r.known[l.set]; m != nil {
			if k := m.pools[l.Pool]; k.behind(l.Live) {
				is = UnderWay
			}
		}
		if slices.Index(order, is) > slices.Index(order, worst) {
			worst = is
		}
	}
	return worst
}

// state returns what is known of a pool without a look at its Pods.
func (r *rollout) state(w *Wanted) PoolState {
	l, k := r.live[w.ref()], r.remembered(client.ObjectKeyFromObject(r.set), w.Pool)
	p := PoolState{
		Current: l != nil && l.Pods == w.PodsHash, Health: l.health(), Canary: r.selected.Canaries[w.Pool],
		Away: l != nil && l.Paused,
	}
	switch {
	case w.Err != nil: // nothing is written, and its message says why
		p.Current = true
	case k.refused != "" && k.hash == w.Hash:
		p.Current, p.Health = true, Failed
	case k.behind(l):
		p.Current, p.Health = k.hash == w.Hash, UnderWay
	}
	return p
}

// readNodes reads the pools' nodes. A pool of which no node is heard from is away.
func (r *rollout) readNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := r.cfg.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	r.nodes = make(map[string][]corev1.Node)
	for _, n := range nodes.Items {
		pool := n.Labels[edge.LabelNodePool]
		r.nodes[pool] = append(r.nodes[pool], n)
	}
	for i := range r.states {
		away := !slices.ContainsFunc(r.nodes[r.wanted[i].Pool], func(n corev1.Node) bool { return TakesPods(&n) })
		r.states[i].Away = r.states[i].Away || away
	}
	return nil
}

// waits reports whether a pool waits, and nobody has paused the rollout. A change of any Node may end that: a pool that is
// away stops nothing, and nobody waits for it.
func (r *rollout) waits() bool {
	return slices.Contains(r.steps, Wait) && r.set.Spec.Rollout != nil && !r.set.Spec.Rollout.Paused
}

// waitForNodes says whether changes of Nodes matter to the YurtAppSet.
func (r *rollout) waitForNodes(waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memoryLocked(client.ObjectKeyFromObject(r.set)).byNodes = waits
}

// stopped says which pool stops the rollout, and why.
func (r *rollout) stopped() string {
	if r.stop < 0 || !slices.Contains(r.steps, Wait) {
		return ""
	}
	w := &r.wanted[r.stop]
	why := r.remembered(client.ObjectKeyFromObject(r.set), w.Pool).refused
	if l := r.live[w.ref()]; why == "" && l != nil {
		why = l.Failure
	}
	return fmt.Sprintf("pool %s fails with the change, and no other pool gets it: %s", w.Pool, why)
}

// outcome returns that of a pool whose workload stays as it is.
func (r *rollout) outcome(i int) Outcome {
	w := &r.wanted[i]
	return Outcome{Pool: w.Pool, Name: w.Name, Live: r.live[w.ref()], Message: cut(r.coming[i].trouble)}
}

// waiting are the pools whose workloads stay as they are.
func (r *rollout) waiting() map[string]bool {
	all := make(map[string]bool)
	for i, step := range r.steps {
		if step != Apply {
			all[r.wanted[i].Pool] = true
		}
	}
	return all
}

// after returns when to look again though nothing has changed; zero means never. The longer a pull takes, the later that is.
func (r *rollout) after() (again time.Duration) {
	soon := func(after time.Duration) {
		if after = max(after, pullAgain); again == 0 || after < again {
			again = after
		}
	}
	if r.taken {
		soon(pullAgain)
	}
	if r.waits() {
		soon(waitAgain)
	}
	for i, c := range r.coming {
		if r.steps[i] == Pull && len(c.missing) > 0 {
			soon(pullAgain)
		}
		for j := range r.pulls {
			p := &r.pulls[j]
			if is, _ := pulled(p); r.steps[i] == Pull && c.pulls[p.Name] && is != Pulled {
				soon(min(r.cfg.Clock.Since(p.CreationTimestamp.Time)/8, mendAfter))
			}
		}
	}
	return again
}
