// Package heartbeat is the cloud's policy for delegated heartbeats: it reads the Leases of the nodes and says on each
// Node what they mean.
//
//	Lease                  verdict     taint                condition CloudLinkDown
//	renewed, unannotated   Direct      removed              False
//	renewed, annotated     Delegated   there                True
//	not renewed            Silent      left as it is        Unknown
//	found, not yet renewed Unobserved  as the annotation    left as it is
//	none ever seen         NoLease     left as it is        left as it is
//
// The taint is node.openyurt.io/unschedulable:NoSchedule. A dead node is kube-controller-manager's business: what is done
// here does not hasten an eviction, nor delay it but as said below.
//
// Where a pool's YurtCoordinator wants it, a node is shown NotReady as well while its verdict is Delegated: show.go. The
// condition Ready is then Unknown with a reason of ours, a label keeps the node out of the count of a zone's losses, and a
// ConfigMap names it (roll.go). Two policies of the API server keep kube-controller-manager from evicting its Pods for that,
// and from taking them out of their Services; its attempts use up the rate at which it evicts. Anything but Delegated has
// Ready back as the kubelet left it. Nothing else of a Node is ever written.
//
// It is level-based: what to write follows from the Lease and the Node alone. The Node's condition is the memory of
// what was announced last, so a restart neither repeats an Event nor loses one.
//
// Time: a Lease counts as renewed when its renewTime is seen to advance, and the time since then is measured with our
// own monotonic clock. renewTime is written with the clock of a node that may be minutes off, so it is compared with
// nothing but itself. kube-controller-manager judges by the same rule. Whoever is blind sees silence everywhere: a
// controller cut off from the API server loses its leader election before it can call a node silent.
//
// Concurrency: the informer's handler writes Sightings and the reconcilers read it, under one mutex that is never held
// across I/O. Invariants: a node whose Lease is not known to be silent has a reconcile due at the latest when the Lease
// turns silent; a renewal that changes nothing enqueues nothing. A taint is written before any condition, that of another node,
// too: where a region is cut off the API server may take a minute for all. Both writes to a Node carry its resourceVersion, so a
// decision made on an outdated copy is refused by the API server and made again; that, and not a lock, is what makes
// each transition be announced once.
//
// Reading the Lease from the cache in each reconcile was the alternative. It needs a reconcile for each renewal (100 a
// second for 1000 nodes) to know when a Lease was seen to advance.
package heartbeat
