package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// A coordinator whose node counts as dead is to run on another. But if the link of the whole pool is cut, all of its nodes
// count as dead, and the coordinator is what its people need most: its Pod stays, and is not stopped when the link is back.
// So the Pod tolerates a dead node without end, until another node, which has room for it, is heard from: that one node
// speaks shows that the link is not what is missing. kube-controller-manager then does the rest.

const (
	// lookAgain is how soon it is looked again for a node that is heard from: a heartbeat comes every 10 s from each.
	lookAgain = 2 * time.Second
	// backFor is how long a node that was not Ready must be so again before it counts. After a cut of the whole pool its nodes
	// come back one by one, each by its kubelet's next heartbeat and status, 10 s apart at most, and is Ready for others after
	// kube-controller-manager's next look, 5 s.
	backFor = 30 * time.Second
)

// leaves are the taints of a dead node, at which a Pod leaves it.
var leaves = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// member is what matters of a pool's node for the question whether a coordinator is to move.
type member struct {
	name edge.NodeName
	// place: it is Ready, and a new coordinator could run there.
	place bool
	// renewed is its Lease's time, in microseconds by the node's own clock: another one is a heartbeat.
	renewed int64
}

// vigil is kept over a coordinator since its node counts as dead. It belongs to one Pod.
type vigil struct {
	pod   types.UID
	signs map[edge.NodeName]sign
}

// sign is what was seen of another node.
type sign struct {
	place   bool
	since   time.Time // that it is a place; zero: it was from the start
	renewed int64
	heard   bool // while it was a place
}

// look takes in how the other nodes are. It returns one that has been heard from since the vigil began and can have the
// coordinator; none: it stays.
func (v *vigil) look(others []member, now time.Time) (witness edge.NodeName) {
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

// isPlace reports whether a coordinator could be started on a node.
func isPlace(n *corev1.Node) bool {
	keepsOff := slices.Concat(leaves, []string{edge.TaintUnschedulable, corev1.TaintNodeUnschedulable})
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && n.DeletionTimestamp.IsZero() &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(keepsOff, t.Key) })
}

// watchOver sees to it that a coordinator leaves a dead node once another is heard from. It returns when to look again; zero:
// not before something changes.
func (r *Reconciler) watchOver(ctx context.Context, o owner, pod *corev1.Pod, nodes []corev1.Node) (time.Duration, error) {
	dead := pod != nil && slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		return n.Name == pod.Spec.NodeName && countsAsDead(&n)
	})
	if !dead || !staysOn(pod) {
		r.endVigil(o.Name)
		return 0, nil
	}
	others := make([]member, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.Name == pod.Spec.NodeName {
			continue
		}
		var lease coordinationv1.Lease
		err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: n.Name}, &lease)
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("read Lease of node %s: %w", n.Name, err)
		}
		m := member{name: edge.NodeName(n.Name), place: isPlace(n)}
		if t := lease.Spec.RenewTime; t != nil {
			m.renewed = t.UnixMicro()
		}
		others = append(others, m)
	}
	r.mu.Lock()
	v := r.vigils[o.Name]
	if v == nil || v.pod != pod.UID {
		v = &vigil{pod: pod.UID}
		r.vigils[o.Name] = v
	}
	witness := v.look(others, r.cfg.Clock.Now())
	r.mu.Unlock()
	if witness == "" {
		return lookAgain, nil
	}
	if err := r.leave(ctx, pod); err != nil {
		return 0, err
	}
	r.told(ctx, o, "CoordinatorMoves", "Node %s counts as dead, and node %s is heard from: the coordinator's Pod %s leaves it",
		pod.Spec.NodeName, witness, pod.Name)
	r.endVigil(o.Name)
	return 0, nil
}

func (r *Reconciler) endVigil(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.vigils, name)
}

// staysOn reports whether a Pod stays on a dead node.
func staysOn(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return slices.Contains(leaves, t.Key) && t.TolerationSeconds == nil
	})
}

// leave ends what a Pod tolerates of its dead node: kube-controller-manager deletes it. Nothing else of a Pod's tolerations
// can be changed but for how long.
func (r *Reconciler) leave(ctx context.Context, pod *corev1.Pod) error {
	tolerations := slices.Clone(pod.Spec.Tolerations)
	for i := range tolerations {
		if slices.Contains(leaves, tolerations[i].Key) {
			tolerations[i].TolerationSeconds = ptr.To[int64](0)
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"spec":     map[string]any{"tolerations": tolerations},
	})
	if err != nil {
		return fmt.Errorf("patch of Pod %s: %w", pod.Name, err)
	}
	there := &corev1.Pod{}
	there.Namespace, there.Name = edge.NamespaceSystem, pod.Name
	err = r.cfg.Client.Patch(ctx, there, client.RawPatch(mergePatch, patch), client.FieldOwner(FieldOwner))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("have Pod %s leave node %s: %w", pod.Name, pod.Spec.NodeName, err)
	}
	return nil
}
