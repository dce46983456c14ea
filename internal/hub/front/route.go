package front

import (
	"fmt"
	"strings"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

// Answerer is a part of the system that may have an answer.
type Answerer uint8

const (
	// Nobody answers.
	Nobody Answerer = iota
	// Cloud is an API server of the cloud. If no answerer has an answer, the client gets the cloud's failure, or the hub's own if
	// the cloud cannot be reached.
	Cloud
	// Lease is the part of the hub that handles this node's own Lease, at the cloud and at the coordinator.
	Lease
	// Follow is the hub's replicas: of a whole resource for the hub itself, or of a selection of its objects for a client.
	Follow
	// Recall is the store of the cloud's last answers.
	Recall
	// StandIn accepts writes in the cloud's place.
	StandIn
	// Warrant decides what coordinators may do with this node's kubelet, and has no answer about other users.
	Warrant

	answererCount
)

// String returns the name that the table uses.
func (a Answerer) String() string {
	return [...]string{"nobody", "cloud", "lease", "follow", "recall", "stand-in", "warrant"}[a]
}

// Kind is the kind of a request, as far as it decides about the answerers.
type Kind uint8

const (
	// Refused: the caller gets 403 and Destination.Reason.
	Refused Kind = iota
	// Passed: only the cloud answers.
	Passed
	// OwnLease reads or renews the Lease of this node.
	OwnLease
	// PoolRead reads a resource that the hub follows as a whole. PoolTable also does, but asks for a table, which the hub can't
	// make.
	PoolRead
	PoolTable
	// Listed lists or watches a selection that is kept for its client.
	Listed
	// Single reads one thing that is kept for its client: an object, API discovery, a Pod's token, or a token's user.
	Single
	// Write changes, creates or deletes objects. Only the cloud answers. What the hub keeps of these objects for the client is
	// outdated after that.
	Write
	// Review asks what a user may do. The cloud's answer to a Review is kept, that to an UnkeptReview is not.
	Review
	UnkeptReview
	// Status writes a Pod's status, NodeStatus that of this Node.
	Status
	NodeStatus
	// Event writes an Event, WaitingEvent one that still waits for the cloud.
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

// OfPool reports whether the request reads a resource that the hub follows as a whole.
func (k Kind) OfPool() bool { return k == PoolRead || k == PoolTable }

// Destination is the result of Decide. The zero Destination refuses.
type Destination struct {
	Kind Kind
	// Answerers are asked in this order, until one has an answer.
	Answerers []Answerer
	// Hears is the part that records the cloud's answer.
	Hears Answerer
	// Reason says why a request is refused and what to do about it.
	Reason string
}

// Request is the part of an API request that Decide needs.
type Request struct {
	// Verb is the Kubernetes verb: get, list, watch, create, update, patch, delete, deletecollection, proxy, connect. For a path
	// that is no resource, Verb is the HTTP method in lower case.
	Verb string
	// Group, Version, Resource, Subresource, Namespace and Name are empty where the path names none. The core group is "".
	Group, Version, Resource, Subresource, Namespace, Name string
	// DryRun: the request must have no effect.
	DryRun bool
	// Waiting: the request writes an Event that still waits for the cloud.
	Waiting bool
	// Path is the URL's path.
	Path string
	// Replicated: the hub keeps a copy of the resource.
	Replicated bool
	// Table: the caller prefers a table to objects.
	Table bool
	// Cached: the hub keeps what the calling program reads.
	Cached bool
	// OwnCredentials: the caller has its own credentials, so the request is not made with the node's identity.
	OwnCredentials bool
	// Known: the hub can find out who that caller is.
	Known bool
	// AssumesIdentity is the name of a header that claims another identity (Impersonate-*, X-Remote-*); empty if there is none.
	AssumesIdentity string
}

// Situation is the input of Decide besides the request.
type Situation struct {
	// Node is the node that the hub runs on.
	Node edge.NodeName
	// StandIn: the hub has a stand-in, which accepts kubelet's statuses and Events in the cloud's place.
	StandIn bool
	// CloudLink and CoordinatorLink are the states of the links at the moment.
	CloudLink, CoordinatorLink link.State
	// HeartbeatsRelayed: CloudLink is down, but a neighbour relays heartbeats and the node's status to the cloud.
	HeartbeatsRelayed bool
}

// namespaceLeases and groupLeases name where Kubernetes keeps the heartbeats of nodes.
const (
	groupLeases     = "coordination.k8s.io"
	namespaceLeases = "kube-node-lease"
)

// groupAccess is the API group of access reviews.
const groupAccess = "authorization.k8s.io"

// Decide returns who answers a request.
func Decide(req Request, s Situation) Destination {
	kind := kindOf(req, s)
	to := Destination{Kind: kind, Answerers: answerers(kind, s), Hears: hears(kind)}
	if kind == Refused {
		// A caller must not act for others with the node's certificate, however little RBAC allows it.
		to.Reason = fmt.Sprintf(
			"header %s needs credentials of the caller's own: the hub does not lend the identity of node %s to it",
			req.AssumesIdentity, s.Node)
	}
	return to
}

// kindOf returns the kind of a request. It does not depend on the states of links.
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

// kept returns the kind of a request whose answer is kept.
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

// answerers is the table of who answers which kind of request. A link to the cloud counts as usable unless it is known to be
// down, because a request finds out sooner than a probe.
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

// around puts the cloud after the others if it is down, otherwise before them.
func around(down bool, others ...Answerer) []Answerer {
	if down {
		return append(others, Cloud)
	}
	return append([]Answerer{Cloud}, others...)
}

// hears returns the part that records the cloud's answer.
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

// standsIn reports whether the stand-in can accept a write in the cloud's place. A dry run changes nothing, so it does not count.
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

// keepable reports whether the answer to a request can be used again later. It can for objects, API discovery, and the tokens and
// reviews that kubelet creates. It cannot for health checks, whose earlier answers say nothing about the present.
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

// reviewed reports whether a request to create something changes no object. It may ask for a Pod's token, without which the Pod
// does not start. Or it asks kubelet's questions about a client: who is it (TokenReview), and what may it do
// (SubjectAccessReview)?
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

// asksAccess reports whether a program of the node asks for an access review, as kubelet does about each of its clients.
func (r Request) asksAccess() bool {
	return !r.OwnCredentials && r.Verb == "create" && r.Group == groupAccess && r.reviewed()
}

// isHeartbeatOf reports whether a request reads or writes the node's own Lease. A create does not name the Lease in its path, but
// a node may create only its own.
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
