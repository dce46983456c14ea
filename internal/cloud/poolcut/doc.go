// Package poolcut holds evictions while a whole pool is cut off from the cloud: by default if it has a coordinator, and for as
// long as the NodePool's annotation says.
//
// When all Leases of a pool stop within one grace period, a cut link is more likely than the death of all nodes at
// once. Then each of these Nodes gets the condition EvictionsHeld, and a policy in the API server
// (hold-evictions.openyurt.io) refuses kube-controller-manager the taints that evict Pods on such Nodes. No Pod is
// written. The Nodes are still shown NotReady, with the usual consequences. When the duration ends, or a node speaks,
// directly or through another, the condition is withdrawn and Kubernetes' own course resumes:
//
//	                         a held node that speaks                       one that does not
//	no node speaks           -                                             held; so is one that spoke before
//	a node speaks            released when it is shown Ready, or not so    held
//	                         by its own kubelet's word; held until then
//	since a grace period     the same                                      released if witnesses miss it
//	the duration has ended   released                                      released
//
// A witness is a leader whose report was seen to be written within a grace period, and that hears another node of those
// that were cut off together: who speaks for itself alone can't say that somebody could have spoken for the others. Of
// several leaders, each at another coordinator, none may hear the node. Where nobody can be a witness, in a pool of two or
// without reports, the grace period suffices (docs/adr/0072).
//
// The grace period exists because a healing link is back for all nodes within a heartbeat or two, and a Pod that
// tolerates nothing must not die of the healing. It begins anew once nobody speaks: a heartbeat that slips through is
// no state. A hold that has ended begins again only for a node that has spoken since.
//
// Time. The verdict must come before kube-controller-manager (1.36, nodelifecycle) taints the first node, one
// node-monitor-grace-period G after the last renewal that it saw. The last renewals before a cut are up to one interval
// apart, which is a quarter of the Lease's duration. So all nodes are silent by our measure one interval plus our
// threshold after the first node's last renewal. The threshold is 3/4 of --silence-after, which must be less than G and
// defaults to a Lease's duration: 3/4 and 1/4 make one Lease's duration, less than G. With Kubernetes' default times
// that is 30 s after the cut, 10 s before the first taint. If the verdict is late nevertheless, a taint that is already
// there is removed, and kube-controller-manager cancels the evictions that it planned; Pods that tolerate nothing are
// gone by then.
//
// Evidence that nodes lived is that they were seen to renew their Leases or, for a program that started after the cut, that
// kube-controller-manager called them Unknown within one grace period, by its own clock. A hold that goes by that counts
// from then. No evidence comes from nodes that fell silent long before the others, or from deleted Leases. A program that does
// not see the Leases loses its leader election first; without an election (--leader-elect=false) its writes fail as its watches
// do. A cut of all pools at once is no special case: that is the cloud's own line, which is a link as well. If the API server
// itself stands still, nobody is tainted either. kube-controller-manager's own mode for a cluster in which no node is Ready
// evicts nothing, and does not conflict with this.
//
// The package is level-based. The Node's condition remembers a hold, which began when the condition became True. The
// wall clock is read only once, when a new leader finds a hold; from then on the monotonic clock measures time. So a
// clock that is set back can lengthen a hold by at most its duration for each new leader, and one that is set forward
// can't end a hold while the leader stays.
//
// Concurrency: each pool has at most one reconcile under way. The watches' handlers share Sightings and roster, each
// with its own mutex that is never held across I/O. Every write carries the resourceVersion that it was decided on.
package poolcut
