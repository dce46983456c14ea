package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/edge"
)

// A coordinator on a dead node must move. But when the link of a whole pool is cut, all its nodes count as dead, and people on
// site need the coordinator most. So its Pod must stay then, also when the link is back. The Pod tolerates a dead node forever,
// until another node with room for it sends a heartbeat, which proves that the link works. Then we delete the Pod. The same goes
// for a coordinator whose node has left the pool, or has no Node any more.

const (
	// lookAgain is how soon to check again for a node that is heard from. Each sends a heartbeat every 10 s.
	lookAgain = 2 * time.Second
	// backFor is how long a node that was not Ready must be Ready again before it can run the coordinator. After a cut of the
	// whole pool, the coordinator's own node may come back later than another one. A node needs kubelet's next heartbeat and
	// status, at most 10 s apart, and then the next check of kube-controller-manager, which comes every 5 s.
	backFor = 30 * time.Second
)

// leaves are the taints of a dead node that make a Pod leave it.
var leaves = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// member is what matters about a pool's node when a coordinator may have to move.
type member struct {
	name edge.NodeName
	// place says that the node is Ready and could run the coordinator's Pod.
	place bool
	// renewed is the renewal time of the node's Lease, in microseconds by the node's own clock. Each new value is a heartbeat.
	renewed int64
}

// vigil watches over a coordinator while its node counts as dead or is not of the pool. It belongs to one Pod.
type vigil struct {
	pod   types.UID
	signs map[edge.NodeName]sign
}

// sign is what was seen of another node.
type sign struct {
	place   bool
	since   time.Time // since when it is a place; zero means from the start
	renewed int64
	heard   bool // heard from while it was a place
}

// observe records the state of the other nodes. It returns a witness: a node that could run the coordinator (see backFor), and
// that has sent a heartbeat since the vigil began. Empty means that there is no witness yet, and the coordinator stays.
func (v *vigil) observe(others []member, now time.Time) (witness edge.NodeName) {
	first := v.signs == nil
	signs := make(map[edge.NodeName]sign, len(others))
	for _, m := range others {
		s, known := v.signs[m.name]
		switch {
		case !m.place:
			s = sign{}
		case !known && first:
			s = sign{place: true}
		case !s.place:
			s = sign{place: true, since: now}
		default:
			s.heard = s.heard || m.renewed != s.renewed
		}
		s.renewed = m.renewed
		signs[m.name] = s
		if s.heard && now.Sub(s.since) >= backFor && (witness == "" || m.name < witness) {
			witness = m.name
		}
	}
	v.signs = signs
	return witness
}

// countsAsDead reports whether Pods that do not tolerate it leave a node.
func countsAsDead(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute && slices.Contains(leaves, t.Key)
	})
}

// watched is a coordinator that is watched over: its YurtCoordinator and its slot.
type watched struct {
	name string
	slot edge.Slot
}

// left says how a coordinator's node has left the pool; empty means that it has not, or that the Pod has no node yet.
func (v view) left(slot edge.Slot) string {
	pod, host := v.crew.current[slot], v.hosts[slot]
	switch {
	case pod == nil || pod.Spec.NodeName == "":
		return ""
	case host == nil:
		return "has no Node any more"
	case poolOf(host) == "":
		return "is in no pool"
	case poolOf(host) != v.census.Pool:
		return "is in pool " + string(poolOf(host))
	}
	return ""
}

// watchOver makes a pool's coordinators leave nodes that are dead or of another pool; see watchOne. One that serves leaves only
// while all others serve, so that the pool has one.
func (r *Reconciler) watchOver(ctx context.Context, o owner, v view) (again time.Duration, err error) {
	all := true
	for _, pod := range v.crew.current {
		all = all && (pod == nil || serves(pod))
	}
	for _, slot := range edge.Slots() {
		if pod := v.crew.current[slot]; pod != nil && serves(pod) && v.left(slot) != "" && !all {
			continue // a change of the other's Pod comes back here
		}
		look, moved, err := r.watchOne(ctx, o, slot, v)
		if err != nil {
			return 0, err
		}
		all = all && !moved
		if look > 0 && (again == 0 || look < again) {
			again = look
		}
	}
	return again, nil
}

// watchOne makes a coordinator leave its node, if that is dead or of another pool, once another node, which could run it, sends a
// heartbeat. It returns when to look again, where zero means after the next change, and whether the coordinator leaves now.
func (r *Reconciler) watchOne(
	ctx context.Context, o owner, slot edge.Slot, all view,
) (again time.Duration, moved bool, err error) {
	pod, host, nodes, key := all.crew.current[slot], all.hosts[slot], all.nodes, watched{o.Name, slot}
	why := all.left(slot)
	if why == "" && host != nil && countsAsDead(host) {
		why = "counts as dead"
	}
	if why == "" {
		r.endVigil(key)
		return 0, false, nil
	}
	places := appset.Places(&pod.Spec, nodes, all.crew.others(slot))
	others := make([]member, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.Name == pod.Spec.NodeName {
			continue
		}
		var lease coordinationv1.Lease
		err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: n.Name}, &lease)
		if client.IgnoreNotFound(err) != nil {
			return 0, false, fmt.Errorf("read Lease of node %s: %w", n.Name, err)
		}
		m := member{name: edge.NodeName(n.Name), place: slices.Contains(places, n.Name)}
		if t := lease.Spec.RenewTime; t != nil {
			m.renewed = t.UnixMicro()
		}
		others = append(others, m)
	}
	r.mu.Lock()
	v := r.vigils[key]
	if v == nil || v.pod != pod.UID {
		v = &vigil{pod: pod.UID}
		r.vigils[key] = v
	}
	witness := v.observe(others, r.cfg.Clock.Now())
	r.mu.Unlock()
	if witness == "" {
		return lookAgain, false, nil
	}
	if err := r.leave(ctx, pod); err != nil {
		return 0, false, err
	}
	r.told(ctx, o, "CoordinatorMoves",
		"Node %s %s, and node %s is heard from: the coordinator's Pod %s is deleted, and made anew",
		pod.Spec.NodeName, why, witness, pod.Name)
	r.endVigil(key)
	return 0, true, nil
}

// serves reports whether a coordinator's Pod is Ready.
func serves(pod *corev1.Pod) bool {
	c := podCondition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func (r *Reconciler) endVigil(key watched) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.vigils, key)
}

// endVigils forgets those over all coordinators of a YurtCoordinator.
func (r *Reconciler) endVigils(name string) {
	for _, slot := range edge.Slots() {
		r.endVigil(watched{name, slot})
	}
}

// leave deletes a Pod. Its Deployment makes another, on a node of the pool.
func (r *Reconciler) leave(ctx context.Context, pod *corev1.Pod) error {
	there := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: pod.Name}}
	err := r.cfg.Client.Delete(ctx, there, client.Preconditions{UID: &pod.UID})
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("make Pod %s leave node %s: %w", pod.Name, pod.Spec.NodeName, err)
	}
	return nil
}
