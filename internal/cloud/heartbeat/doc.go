// Package heartbeat is the cloud's policy for delegated heartbeats: it reads the nodes' Leases and writes on each Node what
// they mean.
//
//	Lease                  verdict     taint                condition CloudLinkDown
//	renewed, unannotated   Direct      removed              False
//	renewed, annotated     Delegated   there, see below     True
//	not renewed            Silent      left as it is        Unknown
//	found, not yet renewed Unobserved  as the annotation    left as it is
//	none ever seen         NoLease     left as it is        left as it is
//
// The taint is node.openyurt.io/unschedulable. Its effect is NoSchedule if another node forwards the heartbeats, or if only the
// heartbeats take another node's line. If all that the node says takes that line, the node is relayed. The effect is then
// PreferNoSchedule, or what the pool's YurtCoordinator says. The reason is that a relayed node's kubelet learns of deletions, and
// NoSchedule would keep the replacements of deleted Pods away (docs/adr/0071-relayed-nodes-let-replacements-in.md).
// kube-controller-manager handles dead nodes. This package does not hasten their evictions, and delays them only as said below.
//
// If a pool's YurtCoordinator asks for it, a node is also shown NotReady while another node forwards its heartbeats (show.go).
// The condition Ready is then Unknown with a reason of ours. A label keeps the node out of the count of a zone's losses, and a
// ConfigMap names it (roll.go). Two policies of the API server then keep kube-controller-manager from evicting the node's Pods,
// and from taking them out of their Services. The refused evictions still use up kube-controller-manager's rate of evictions.
// Once no other node forwards its heartbeats, Ready becomes again what the kubelet said. The verdict Unobserved changes nothing.
// In other pools, a node that kube-controller-manager had given up is shown Ready once another node forwards its heartbeats. In
// both kinds of pools, evicting taints are removed from such a node. Nothing else of a Node is ever written.
//
// A node is unsettled if the source of its heartbeats changes a fourth time within a minute (damp.go). The reason is that any
// node of a pool can mark its neighbours' Leases at will. An unsettled node has the condition True and the taint of a relayed
// node (PreferNoSchedule if its pool gives relayed nodes none), until its Lease has named the same source for a minute.
//
// The package is level-based: Lease, Node and YurtCoordinator determine what to write. Only the damper goes by memory. The Node's
// condition remembers what was announced last, so a restart neither repeats an Event nor loses one.
//
// Time: a Lease counts as renewed when its renewTime is seen to change. Our own monotonic clock measures the time since then. A
// node writes renewTime by its own clock, which may be minutes off and may be put back. So nothing asks which of two renewTimes
// of one Lease is later. kube-controller-manager counts only a renewTime that is later than the last, and hubs make sure that
// each one is (docs/adr/0024-renewals.md). A controller that is cut off from the API server would see silence everywhere. But it
// loses its leader election before it can call a node silent.
//
// Concurrency: the informer's handler writes Sightings and the reconcilers read them, under one mutex that is never held across
// I/O. Invariants: a node whose Lease is not known to be silent has a reconcile due at the latest when the Lease turns silent.
// A renewal that changes nothing enqueues nothing. All taints that are due are written before any condition. After the cut of a
// region the API server may take a minute for all of them. Both writes to a Node carry its resourceVersion. So the API server
// refuses a decision on an outdated copy, and the decision is made again. That, and not a lock, makes sure that each transition
// is announced once.
//
// The alternative was to read the Lease from the cache in each reconcile. That needs a reconcile for each renewal (100 a second
// for 1000 nodes) to know when a Lease was seen to advance.
package heartbeat
