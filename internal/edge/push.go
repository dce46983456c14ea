package edge

// Hubs push two shares to a coordinator: the pool's resources, below PathMirror, and their nodes' own objects, below PathOwn. A
// share is always in a state that has a name, and a push brings it from one state to the next:
//
//	GET  SHARE                                    where the share stands (PoolState, NodeState)
//	POST SHARE/{group|core}/{version}/{resource}  a watch stream, in batches; each is answered by a line (Taken)
//
// HeaderHistory names the history of all revisions in a push. A refusal is a Status, and ends the answer as its last line. If
// the refusal is also the first line, its code is the code of the answer.
const (
	// PathMirror is where a coordinator serves the pool's resources with the cloud's revisions. The state of a resource is the
	// revision up to which the coordinator has that resource.
	PathMirror = "/mirror/v1"

	// PathOwn is where hubs push their own nodes' objects. The state of a node's objects is the ETag of the GET, without quotes.
	PathOwn = "/own/v1"

	// CoreGroup stands for the core group, whose name is empty, in paths below PathMirror and PathOwn.
	CoreGroup = "core"
)

// Parameters of a push.
const (
	// QueryFrom is the state from which the push continues. Without it the push brings everything. Only a push of a pool
	// resource may leave it out.
	QueryFrom = "from"
	// QueryTerm is the leaseTransitions of the Lease under which the pusher leads, or fills.
	QueryTerm = "term"
	// QueryLocal marks a push of a node's own objects that have changes by the node, which have not reached the cloud yet.
	QueryLocal = "local"
)

// PoolState says how far each resource of the pool has come.
type PoolState struct {
	// Instance changes with each start of the coordinator: what was applied before is gone.
	Instance  string          `json:"instance"`
	Resources []ResourceState `json:"resources"`
}

// ResourceState is the state of one resource.
type ResourceState struct {
	Group    string   `json:"group"`
	Version  string   `json:"version"`
	Resource string   `json:"resource"`
	Applied  Revision `json:"applied,string"` // 0 means nothing yet
	History  History  `json:"history,string"` // the cloud's history, in which Applied counts
	Filled   bool     `json:"filled,omitempty"`
	Objects  int      `json:"objects"`
	Bytes    int      `json:"bytes"`
	Watchers int      `json:"watchers"`
}

// Shared is how far a resource is that the pool shares, for people to see.
type Shared struct {
	// Resource is RESOURCE.GROUP, as the API shows it.
	Resource string
	// Complete: all of it has come since the coordinator started. Current: it is complete, and the leader brings each change.
	Complete, Current bool
	// Warns is what kubectl prints about it; empty means nothing.
	Warns string
}

// NodeState is what a node has at a coordinator.
type NodeState struct {
	Objects []NodeObject `json:"objects"`
}

// NodeObject is one object of a node.
type NodeObject struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Revision is the cloud's revision of what the hub pushed; 0 means that the hub must push it again.
	Revision Revision `json:"revision,string"`
	// History is the history that Revision counts in; 0 is left out.
	History History `json:"history,omitempty,string"`
	// Local means that the content is the node's own word, on top of the cloud's state at that revision.
	Local bool `json:"local,omitempty"`
}

// Taken answers a batch.
type Taken struct {
	// Applied is the state that the next batch, or push, follows on from. Empty means that the pusher must ask for it.
	Applied string `json:"applied,omitempty"`
	// Refused are the objects that were not taken; all others were.
	Refused []RefusedObject `json:"refused,omitempty"`
}

// RefusedObject is one object that was not taken, and why.
type RefusedObject struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Code      int    `json:"code"`
	Message   string `json:"message"`
}
