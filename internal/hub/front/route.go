package front

import (
	"fmt"
	"strings"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

// Answerer is somebody who may have an answer.
type Answerer uint8

const (
	// Nobody answers.
	Nobody Answerer = iota
	// Cloud is an API server of the cloud. It is asked again for what nobody has an answer to: then its refusal counts, or the
	// hub's own, which says that the cloud cannot be reached.
	Cloud
	// Lease is the heartbeat of this node, which knows the cloud's and the coordinator's copy of the Lease. It asks both.
	Lease
	// Follow is what the hub follows: all of a resource for itself, or a selection for the client that asks.
	Follow
	// Recall is what the cloud said last.
	Recall
	// StandIn takes writes.
	StandIn
	// Warrant says what coordinators may do with this node's kubelet, and nothing of anybody else.
	Warrant

	answererCount
)

// String returns the name that the table uses.
func (a Answerer) String() string {
	return [...]string{"nobody", "cloud", "lease", "follow", "recall", "stand-in", "warrant"}[a]
}

// Kind is what a request is, as far as it matters for who answers.
type Kind uint8

const (
	// Refused: the caller gets 403 and Destination.Reason.
	Refused Kind = iota
	// Passed: it is the cloud's alone.
	Passed
	// OwnLease reads or renews the Lease of this node.
	OwnLease
	// PoolRead reads a resource of which the hub follows all for itself, PoolTable as a table, which the hub does not make.
	PoolRead
	PoolTable
	// Listed lists or watches what is kept for its client.
	Listed
	// Single reads one thing that is kept for its client: an object, what the API has, a Pod's token, who a token's bearer is.
	Single
	// Write changes, makes or deletes objects. It is the cloud's alone; what is kept for its client of them is so no more.
	Write
	// Review asks what somebody may do. The cloud's answer is kept, that to an UnkeptReview is not.
	Review
	UnkeptReview
	// Status reports that of a Pod, NodeStatus that of the own Node.
	Status
	NodeStatus
	// Event writes one, WaitingEvent one of which the cloud is still to be told.
	Event
	WaitingEvent

	kindCount
)

// String returns the name that the table, metrics and logs use.
func (k Kind) String() string {
	return [...]string{
		"refused", "anything else", "own Lease", "pool's resource", "pool's resource, as a table", "list, watch", "one object",
		"write", "review",
		"review, not kept", "status of a Pod", "status of the node", "Event", "Event, one waits",
	}[k]
}

// OfPool reports whether it is a read of a resource of which the hub follows all for itself.
func (k Kind) OfPool() bool { return k == PoolRead || k == PoolTable }

// Destination is the answer of Decide. The zero Destination refuses.
type Destination struct {
	Kind Kind
	// Answerers are asked in this order, until one has an answer.
	Answerers []Answerer
	// Hears is who takes note of what the cloud answers.
	Hears Answerer
	// Reason says why a request is refused and what to do about it.
	Reason string
}

// Request is what a decision needs to know of an API request.
type Request struct {
	// Verb is the Kubernetes verb: get, list, watch, create, update, patch, delete, deletecollection, proxy, connect;
	// for a path that is no resource, the HTTP method in lower case.
	Verb string
	// Group, Version, Resource, Subresource, Namespace and Name are empty where the path names none. The core group is "".
	Group, Version, Resource, Subresource, Namespace, Name string
	// DryRun: nothing is to come of it.
	DryRun bool
	// Waiting: it writes an Event of which the cloud is still to be told.
	Waiting bool
	// Path is the URL's path.
	Path string
	// Replicated: the hub keeps a copy of the resource.
	Replicated bool
	// Table: the caller would rather have a table than objects.
	Table bool
	// Cached: what the calling program reads is to be kept.
	Cached bool
	// OwnCredentials: the caller brought its own, so that the request is not made with the node's identity.
	OwnCredentials bool
	// Known: it can be found out who that caller is.
	Known bool
	// AssumesIdentity is the name of the first header by which the request asks to be taken for somebody else
	// (Impersonate-*, X-Remote-*); empty if it has none.
	AssumesIdentity string
}

// Situation is what a decision depends on besides the request.
type Situation struct {
	// Node is the node that the hub runs on.
	Node edge.NodeName
	// StandIn: somebody takes in the cloud's place what kubelet reports, and Events.
	StandIn bool
	// CloudLink and CoordinatorLink are the states of the links at the moment.
	CloudLink, CoordinatorLink link.State
	// HeartbeatsRelayed: though CloudLink is down, heartbeats and the node's status reach the cloud, through a neighbour.
	HeartbeatsRelayed bool
}

// namespaceLeases and groupLeases name where Kubernetes keeps the heartbeats of nodes.
const (
	groupLeases     = "coordination.k8s.io"
	namespaceLeases = "kube-node-lease"
)

// groupAccess is the group of reviews of what somebody may do.
const groupAccess = "authorization.k8s.io"

// Decide says who answers a request.
func Decide(req Request, s Situation) Destination {
	kind := kindOf(req, s)
	to := Destination{Kind: kind, Answerers: answerers(kind, s), Hears: hears(kind)}
	if kind == Refused {
		// The node's certificate is not a caller's to act with on behalf of others, however little RBAC lets it.
		to.Reason = fmt.Sprintf(
			"header %s needs credentials of the caller's own: the hub does not lend the identity of node %s to it",
			req.AssumesIdentity, s.Node)
	}
	return to
}

// kindOf says what a request is. It does not depend on the states of links.
func kindOf(req Request, s Situation) Kind {
	stood := s.StandIn && req.standsIn(s.Node)
	switch {
	case req.AssumesIdentity != "" && !req.OwnCredentials:
		return Refused
	case !req.OwnCredentials && req.isHeartbeatOf(s.Node):
		return OwnLease
	case req.OwnCredentials && (!req.Known || req.AssumesIdentity != ""):
		return Passed
	case req.Replicated && req.Subresource == "" && req.reads():
		if req.Table {
			return PoolTable
		}
		return PoolRead
	case req.Cached && req.keepable():
		return req.kept()
	case req.asksAccess():
		return UnkeptReview
	case !stood && req.Cached && req.writes():
		return Write
	case !stood:
		return Passed
	case req.Resource == "nodes":
		return NodeStatus
	case req.Resource != "events":
		return Status
	case req.Waiting:
		return WaitingEvent
	default:
		return Event
	}
}

// kept is the kind of a request whose answer is kept.
func (r Request) kept() Kind {
	switch {
	case r.Verb == "list" || r.Verb == "watch":
		return Listed
	case r.asksAccess():
		return Review
	default:
		return Single
	}
}

// answerers is the table. What is not known to be down is tried: a request finds out sooner than a probe.
func answerers(k Kind, s Situation) []Answerer {
	down := s.CloudLink == link.Down
	coordinator := s.CoordinatorLink == link.Up
	switch k {
	case Refused:
		return nil
	case OwnLease:
		return []Answerer{Lease}
	case PoolRead:
		return []Answerer{Follow}
	case PoolTable:
		return around(down, Follow)
	case Listed:
		return []Answerer{Follow, Cloud}
	case Single:
		return around(down, Follow, Recall)
	case Review:
		return append([]Answerer{Warrant}, around(down, Recall)...)
	case UnkeptReview:
		return []Answerer{Warrant, Cloud}
	case Status, NodeStatus:
		down = down && (k != NodeStatus || !s.HeartbeatsRelayed)
		if !coordinator && !down {
			return []Answerer{Cloud}
		}
		return around(down, StandIn) // without a coordinator, too: this node's own endpoints follow it
	case Event:
		return around(down, StandIn) // which keeps it, without a coordinator too
	case WaitingEvent:
		return around(true, StandIn) // so the cloud hears of it in the order in which it was written
	default:
		return []Answerer{Cloud}
	}
}

// around puts the cloud behind the others if it is down, else before them.
func around(down bool, others ...Answerer) []Answerer {
	if down {
		return append(others, Cloud)
	}
	return append([]Answerer{Cloud}, others...)
}

// hears says who takes note of what the cloud answers.
func hears(k Kind) Answerer {
	switch k {
	case Single, Write, Review, Status, NodeStatus:
		return Recall
	case Event, WaitingEvent:
		return StandIn
	default:
		return Nobody
	}
}

// standsIn reports whether somebody on this node can take a write in the cloud's place. A dry run leaves nothing to take.
func (r Request) standsIn(node edge.NodeName) bool {
	if r.OwnCredentials || r.DryRun || r.Group != "" || r.Version != "v1" {
		return false
	}
	switch {
	case r.Resource == "events" && r.Subresource == "" && r.Namespace != "":
		return r.Verb == "create" && r.Name == "" || r.Verb == "patch" && r.Name != ""
	case r.Subresource != "status" || r.Verb != "patch" && r.Verb != "update":
		return false
	case r.Resource == "nodes":
		return r.Namespace == "" && r.Name == string(node)
	default:
		return r.Resource == "pods" && r.Namespace != "" && r.Name != ""
	}
}

func (r Request) reads() bool { return r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" }

// writes reports whether a request changes objects.
func (r Request) writes() bool {
	switch r.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return false
	}
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return r.Resource != "" && !r.DryRun && !r.reviewed()
	default:
		return false
	}
}

// keepable reports whether a request reads something that will do later, too: objects, what the API has, and what kubelet
// has made. Health is not: that of the last time says nothing.
func (r Request) keepable() bool {
	switch {
	case r.Resource == "":
		return r.Verb == "get" && (r.Path == "/version" || r.Path == "/api" || r.Path == "/apis" ||
			strings.HasPrefix(r.Path, "/api/") || strings.HasPrefix(r.Path, "/apis/"))
	case r.Verb == "create":
		return !r.OwnCredentials && r.reviewed()
	default:
		return r.Subresource == "" && r.reads()
	}
}

// reviewed reports whether a request that creates something changes nothing: the tokens of Pods, without which none of them
// starts, and whether somebody is who he says and may do what he wants with kubelet.
func (r Request) reviewed() bool {
	switch r.Group {
	case "":
		return r.Resource == "serviceaccounts" && r.Subresource == "token"
	case "authentication.k8s.io":
		return r.Resource == "tokenreviews" && r.Subresource == ""
	case groupAccess:
		return r.Resource == "subjectaccessreviews" && r.Subresource == ""
	default:
		return false
	}
}

// asksAccess reports whether a program of the node asks what somebody may do, as kubelet does of whoever calls it.
func (r Request) asksAccess() bool {
	return !r.OwnCredentials && r.Verb == "create" && r.Group == groupAccess && r.reviewed()
}

// isHeartbeatOf reports whether a request is what kubelet does with its Lease. The path of a POST does not say which Lease it
// makes; a node may make none but its own.
func (r Request) isHeartbeatOf(node edge.NodeName) bool {
	if node == "" || r.Group != groupLeases || r.Resource != "leases" || r.Subresource != "" || r.Namespace != namespaceLeases {
		return false
	}
	switch r.Verb {
	case "get", "update":
		return r.Name == string(node)
	case "create":
		return r.Name == ""
	default:
		return false
	}
}
