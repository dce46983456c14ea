package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// Reasons of the condition Pending. With status False they say what would keep the pool from a coordinator, had it not one
// already.
const (
	// ReasonPoolNotFound: there is no NodePool of that name.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonTooFewNodes: the pool has less than three nodes. A pool that has a coordinator keeps it when it shrinks: taking
	// it away would end the delegation of heartbeats just when nodes are missing.
	ReasonTooFewNodes = "TooFewNodes"
	// ReasonSecondCoordinator: the pool has an older YurtCoordinator.
	ReasonSecondCoordinator = "SecondCoordinator"
	// ReasonNodeAutonomy: a node of the pool keeps its Pods by node autonomy, which does not go with a coordinator. A pool
	// that has a coordinator keeps it.
	ReasonNodeAutonomy = "NodeAutonomy"
	// ReasonDeployed: nothing is in the way.
	ReasonDeployed = "Deployed"
)

// NodeFact is what matters of a node.
type NodeFact struct {
	Name edge.NodeName
	// Autonomous: it has annotations of node autonomy.
	Autonomous bool
}

// Census is what a verdict on a pool is made from.
type Census struct {
	// Pool's NodePool exists, and is not on its way out.
	Pool       edge.PoolName
	PoolExists bool
	// Coordinators are all YurtCoordinators of the pool.
	Coordinators []*v1alpha1.YurtCoordinator
	Nodes        []NodeFact
	// Deployed: the pool has a workload.
	Deployed bool
}

// Verdict is whether a pool is to have a coordinator.
type Verdict struct {
	// Holder is the YurtCoordinator that has the pool: the oldest, of equally old ones the first by name. It has it until it
	// is gone. Nil: there is none.
	Holder *v1alpha1.YurtCoordinator
	// Run: the pool is to have a coordinator.
	Run bool
	// Reason and Message say what is in the way, or was if the pool has one all the same.
	Reason, Message string
}

// Judge decides.
func Judge(c Census) Verdict {
	if len(c.Coordinators) == 0 {
		return Verdict{}
	}
	v := Verdict{Holder: slices.MinFunc(c.Coordinators, older), Reason: ReasonDeployed, Message: "Nothing is in the way."}
	autonomous := autonomousOf(c.Nodes)
	switch {
	case !c.PoolExists:
		v.Reason = ReasonPoolNotFound
		v.Message = fmt.Sprintf("There is no NodePool %s. Make it, or correct spec.nodePool in a new YurtCoordinator.", c.Pool)
	case len(autonomous) > 0:
		v.Reason = ReasonNodeAutonomy
		v.Message = fmt.Sprintf("Node autonomy and a coordinator exclude each other. Remove the annotations %s and %s from %s.",
			edge.AnnotationAutonomy, edge.AnnotationAutonomyDuration, some(autonomous))
	case len(c.Nodes) < edge.MinPoolNodes:
		v.Reason = ReasonTooFewNodes
		v.Message = fmt.Sprintf("NodePool %s has %d nodes and needs %d. Add nodes with the label %s=%s.",
			c.Pool, len(c.Nodes), edge.MinPoolNodes, edge.LabelNodePool, c.Pool)
	}
	v.Run = v.Reason == ReasonDeployed || c.Deployed && c.PoolExists
	if v.Run && v.Reason != ReasonDeployed {
		v.Message += " The coordinator that runs already stays."
	}
	if !v.Holder.DeletionTimestamp.IsZero() {
		v.Run = false
	}
	return v
}

// For is what the verdict means to one YurtCoordinator of the pool.
func (v Verdict) For(c *v1alpha1.YurtCoordinator) Verdict {
	if v.Holder == nil || v.Holder.Name != c.Name {
		v.Run, v.Reason = false, ReasonSecondCoordinator
		if v.Holder != nil {
			v.Message = fmt.Sprintf("NodePool %s has the YurtCoordinator %s. Delete one of the two.",
				c.Spec.NodePool, v.Holder.Name)
		}
	}
	return v
}

func older(a, b *v1alpha1.YurtCoordinator) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

func autonomousOf(nodes []NodeFact) []string {
	var names []string
	for _, n := range nodes {
		if n.Autonomous {
			names = append(names, string(n.Name))
		}
	}
	slices.Sort(names)
	return names
}

// some names a few of many.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
