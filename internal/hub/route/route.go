// Package route decides where an API request goes. It is pure: a request and a situation in, a destination out; who
// serves the destination is the front's business.
//
// A Destination says where a request goes first, and whether this node may stand in where that has no answer. What is answered
// then, and whether a read is answered from memory, its handlers still decide (follow, recall, standin).
package route

import (
	"fmt"
	"strings"

	"yurtcoordinator/internal/edge"
)

// Kind is where a request goes.
type Kind uint8

const (
	// Refused: nowhere; the caller gets 403 and Destination.Reason.
	Refused Kind = iota
	// Cloud: to an API server of the cloud.
	Cloud
	// OwnLease: to the heartbeat of this node, which knows the cloud's and the coordinator's copy of the Lease.
	OwnLease
	// Replica: to the hub's own copy of the resource.
	Replica
	// Kept: to what the hub keeps for its node's programs, so that they have it when nothing can be reached.
	Kept
)

// String returns the name that metrics and logs use.
func (k Kind) String() string {
	switch k {
	case Cloud:
		return "cloud"
	case OwnLease:
		return "own-lease"
	case Replica:
		return "replica"
	case Kept:
		return "kept"
	default:
		return "refused"
	}
}

// Destination is the answer of Decide. The zero Destination refuses.
type Destination struct {
	Kind Kind
	// StandIn: what this node stands in for is asked for, where Kind has no answer: kubelet's statuses, the Events of the
	// node's programs, and reviews.
	StandIn bool
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
	// Path is the URL's path.
	Path string
	// Replicated: the hub keeps a copy of the resource.
	Replicated bool
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
	// Coordinator: the pool has a coordinator and the hub is to use it.
	Coordinator bool
	// StandIn: somebody takes in the cloud's place what kubelet reports, and Events.
	StandIn bool
}

// namespaceLeases and groupLeases name where Kubernetes keeps the heartbeats of nodes.
const (
	groupLeases     = "coordination.k8s.io"
	namespaceLeases = "kube-node-lease"
)

// Decide says where a request goes.
func Decide(req Request, s Situation) Destination {
	switch {
	case req.AssumesIdentity != "" && !req.OwnCredentials:
		// The node's certificate is not a caller's to act with on behalf of others, however little RBAC lets it.
		return Destination{Kind: Refused, Reason: fmt.Sprintf(
			"header %s needs credentials of the caller's own: the hub does not lend the identity of node %s to it",
			req.AssumesIdentity, s.Node)}
	case s.Coordinator && !req.OwnCredentials && req.isHeartbeatOf(s.Node):
		return Destination{Kind: OwnLease}
	case req.OwnCredentials && (!req.Known || req.AssumesIdentity != ""):
		return Destination{Kind: Cloud}
	case req.Replicated && req.Subresource == "" && req.reads():
		// The copy is what the node itself may read. Whether a caller with credentials of its own may is asked first.
		return Destination{Kind: Replica}
	case req.Cached && req.keepable():
		return Destination{Kind: Kept, StandIn: s.StandIn && req.standsIn(s.Node)}
	default:
		return Destination{Kind: Cloud, StandIn: s.StandIn && req.standsIn(s.Node)}
	}
}

// standsIn reports whether somebody on this node can take a write in the cloud's place, or answer a review. A dry run leaves
// nothing to take.
func (r Request) standsIn(node edge.NodeName) bool {
	if r.OwnCredentials || r.DryRun {
		return false
	}
	switch r.Group {
	case "authentication.k8s.io", "authorization.k8s.io":
		return r.Verb == "create" && r.Version == "v1" && r.reviewed()
	case "":
		if r.Version != "v1" {
			return false
		}
	default:
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
	case "authorization.k8s.io":
		return r.Resource == "subjectaccessreviews" && r.Subresource == ""
	default:
		return false
	}
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
