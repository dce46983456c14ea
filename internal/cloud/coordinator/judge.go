package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// Reasons of the condition Pending. With ReasonBadPoolName, ReasonTooFewNodes, ReasonNodeAutonomy and ReasonBadSettings a pool
// keeps a coordinator that it already has, and the status of Pending is False.
const (
	// ReasonPoolNotFound: no NodePool has that name.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonBadPoolName: the pool's name has a dot.
	ReasonBadPoolName = "BadPoolName"
	// ReasonTooFewNodes: the pool has fewer nodes than it needs, three by default. A pool that shrinks keeps its coordinator.
	// Otherwise the delegation of heartbeats would end just when nodes are missing.
	ReasonTooFewNodes = "TooFewNodes"
	// ReasonSecondCoordinator: the pool has an older YurtCoordinator.
	ReasonSecondCoordinator = "SecondCoordinator"
	// ReasonNodeAutonomy: a node of the pool keeps its Pods by node autonomy, which can't be combined with a coordinator.
	ReasonNodeAutonomy = "NodeAutonomy"
	// ReasonBadSettings: what PoolSettings say of the pool's coordinator can't be used. A coordinator that runs stays as it is.
	ReasonBadSettings = "BadSettings"
	// ReasonDeployed: nothing is in the way.
	ReasonDeployed = "Deployed"
)

// NodeFact is what matters about a node.
type NodeFact struct {
	Name edge.NodeName
	// Autonomous says that the node has annotations of node autonomy.
	Autonomous bool
}

// Census is the input of a verdict on a pool.
type Census struct {
	Pool edge.PoolName
	// PoolExists says that Pool's NodePool exists and is not being deleted.
	PoolExists bool
	// Coordinators are all YurtCoordinators of the pool.
	Coordinators []*v1alpha1.YurtCoordinator
	Nodes        []NodeFact
	// MinNodes is how many nodes it takes; zero means edge.MinPoolNodes.
	MinNodes int
	// BadSettings says why the settings of the coordinator can't be used.
	BadSettings error
	// Deployed says that the pool has a workload.
	Deployed bool
}

// Verdict says whether a pool must have a coordinator.
type Verdict struct {
	// Holder is the YurtCoordinator that counts for the pool until it is gone: the oldest, or the first by name if several are
	// equally old. Nil means that the pool has none.
	Holder *v1alpha1.YurtCoordinator
	// Run says that the pool must have a coordinator.
	Run bool
	// Reason and Message say what is in the way, or would be if the pool did not already have a coordinator.
	Reason, Message string
}

// Judge decides whether a pool must have a coordinator.
func Judge(c Census) Verdict {
	if len(c.Coordinators) == 0 {
		return Verdict{}
	}
	v := Verdict{Holder: slices.MinFunc(c.Coordinators, older), Reason: ReasonDeployed, Message: "Nothing is in the way."}
	autonomous, needs := autonomousOf(c.Nodes), cmp.Or(c.MinNodes, edge.MinPoolNodes)
	badName := c.Pool.CheckName()
	switch {
	case badName != nil:
		v.Reason = ReasonBadPoolName
		v.Message = fmt.Sprintf("%v. Make a NodePool with another name, and move the nodes: kubectl label node "+
			"-l %s=%s %s=NAME --overwrite.", badName, edge.LabelNodePool, c.Pool, edge.LabelNodePool)
	case !c.PoolExists:
		v.Reason = ReasonPoolNotFound
		v.Message = fmt.Sprintf("There is no NodePool %s. Create it, or make a new YurtCoordinator with the right spec.nodePool.",
			c.Pool)
	case len(autonomous) > 0:
		v.Reason = ReasonNodeAutonomy
		v.Message = fmt.Sprintf("Node autonomy and a coordinator exclude each other. Remove the annotations %s and %s from %s.",
			edge.AnnotationAutonomy, edge.AnnotationAutonomyDuration, edge.Some(autonomous))
	case len(c.Nodes) < needs:
		v.Reason = ReasonTooFewNodes
		v.Message = fmt.Sprintf("NodePool %s has %s and needs %d. Add nodes with the label %s=%s, or see "+
			"docs/small-pools.md.", c.Pool, edge.Count(len(c.Nodes), "node", "nodes"), needs, edge.LabelNodePool, c.Pool)
	case c.BadSettings != nil:
		v.Reason = ReasonBadSettings
		v.Message = fmt.Sprintf("The settings of the coordinator can't be used; correct the PoolSettings: %.512s.",
			c.BadSettings.Error())
	}
	v.Run = v.Reason == ReasonDeployed || c.Deployed && c.PoolExists
	if v.Run && v.Reason != ReasonDeployed {
		v.Message += " The running coordinator stays."
	}
	if !v.Holder.DeletionTimestamp.IsZero() {
		v.Run = false
	}
	return v
}

// For returns what the verdict means for one of the pool's YurtCoordinators.
func (v Verdict) For(c *v1alpha1.YurtCoordinator) Verdict {
	if v.Holder == nil || v.Holder.Name != c.Name {
		v.Run, v.Reason = false, ReasonSecondCoordinator
		if v.Holder != nil {
			v.Message = fmt.Sprintf("NodePool %s already has YurtCoordinator %s. Delete one of the two.",
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
