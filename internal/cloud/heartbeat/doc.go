// Package heartbeat is the cloud's policy for delegated heartbeats: it reads the nodes' Leases and writes on each Node
// what they mean.
//
//	Lease                  verdict     taint                condition CloudLinkDown
//	renewed, unannotated   Direct      removed              False
//	renewed, annotated     Delegated   there, see below     True
//	not renewed            Silent      left as it is        Unknown
//	found, not yet renewed Unobserved  as the annotation    left as it is
//	none ever seen         NoLease     left as it is        left as it is
//
// The taint is node.openyurt.io/unschedulable. If another node forwards the heartbeats, its effect is NoSchedule. If the node
// reports itself over another node's line, it is PreferNoSchedule, or as the pool's YurtCoordinator says: kubelet hears deletions
// there, and NoSchedule would keep the replacements away (docs/adr/0071-relayed-nodes-let-replacements-in.md).
// kube-controller-manager handles dead nodes. This package neither hastens their evictions nor, except as said below, delays
// them.
//
// If a pool's YurtCoordinator asks for it, a node is also shown NotReady while its verdict is Delegated (show.go). The
// condition Ready is then Unknown with a reason of ours, a label keeps the node out of the count of a zone's losses,
// and a ConfigMap names it (roll.go). Two policies of the API server then keep kube-controller-manager from evicting
// the node's Pods, and from taking them out of their Services; its attempts use up its rate of evictions. With any
// other verdict Ready becomes again what the kubelet said. Nothing else of a Node is ever written.
//
// A node whose Lease changes its word a fourth time within a minute is unsettled (damp.go): any node of a pool can mark its
// neighbours' Leases at will. It has PreferNoSchedule and the condition True until the Lease has said one thing for a minute.
//
// The package is level-based: Lease and Node alone determine what to write. The Node's condition remembers what was
// announced last, so a restart neither repeats an Event nor loses one.
//
// Time: a Lease counts as renewed when its renewTime is seen to change; our own monotonic clock measures the time since
// then. A node writes renewTime by its own clock, which may be minutes off and may be put back, so nothing asks which of
// two is later. kube-controller-manager counts an advance only, which hubs see to (docs/adr/0024-renewals.md). A blind
// observer sees silence everywhere: a controller that is cut off from the API server loses its leader election before it
// can call a node silent.
//
// Concurrency: the informer's handler writes Sightings and the reconcilers read it, under one mutex that is never held
// across I/O. Invariants: a node whose Lease is not known to be silent has a reconcile due at the latest when the Lease
// turns silent. A renewal that changes nothing enqueues nothing. Every taint is written before any condition, even
// another node's: after the cut of a region the API server may take a minute for all of them. Both writes to a Node
// carry its resourceVersion, so the API server refuses a decision on an outdated copy, and it is made again; that, and
// not a lock, makes each transition be announced once.
//
// The alternative was to read the Lease from the cache in each reconcile. It needs a reconcile for each renewal (100 a
// second for 1000 nodes) to know when a Lease was seen to advance.
package heartbeat
