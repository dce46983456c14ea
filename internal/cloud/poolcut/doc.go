// Package poolcut holds evictions while a whole pool is cut off from the cloud, where the NodePool's annotation asks for it.
//
// When all Leases of a pool stop within one grace period, that is more likely a link than all nodes dying at once. Then
// each of these Nodes gets the condition EvictionsHeld, and a policy in the API server (hold-evictions.openyurt.io) refuses
// kube-controller-manager the taints that evict Pods, on Nodes that say so. No Pod is written. The Nodes are shown NotReady
// as ever, and what follows from that is as ever. When the duration ends, or a node speaks, directly or by another, the
// condition is withdrawn and Kubernetes' own course resumes:
//
//	                         a held node that speaks                       one that does not
//	no node speaks           -                                             held
//	a node speaks            released when it is shown Ready, or not so    held for one grace period more
//	                         by its own kubelet's word; held until then
//	since a grace period     the same                                      released
//	the duration has ended   released                                      released
//
// The grace period more is because links heal for all nodes within a heartbeat or two, and a Pod that tolerates nothing must
// not die of the healing. A hold that has ended does not begin again for a node that has not spoken since.
//
// Time. The verdict must be there before kube-controller-manager (1.36, nodelifecycle) taints the first node, which it does
// one node-monitor-grace-period G after the last renewal that it saw. The last renewals before a cut are up to one interval
// apart, which is a quarter of the Lease's duration. So all nodes are silent by our measure one interval and our
// threshold after the first node's last renewal. The threshold is 3/4 of --silence-after, which itself is to be less than G
// and is a Lease's duration by default: 3/4 and 1/4 make one, less than G. In Kubernetes' own times: 30 s after the
// cut, which is 10 s before the first taint. Where this comes late nevertheless, a taint that is there already is removed,
// and kube-controller-manager cancels what it had planned for it; what tolerated nothing is gone by then.
//
// What no evidence is made of: nodes of which no renewal was seen since this program started, nodes that fell silent long
// before the others, deleted Leases. A program that does not see the Leases loses its leader election first; without one
// (--leader-elect=false) its writes fail as its watches do. All pools at once are no special case: that is the cloud's own
// line, a link too. Should the API server itself stand still, nobody is tainted either. kube-controller-manager's own mode
// for that case, when no node of the whole cluster is Ready, evicts nothing, and goes together with this.
//
// It is level-based. The Node's condition is the memory of a hold: it began when the condition became True. The wall clock is
// asked for that once, when a hold is found by a new leader; from then on, time is measured by the monotonic clock. So a clock
// that is set back can lengthen a hold by at most its duration for each new leader, and one that is set forward can't end
// one while the leader stays.
//
// Concurrency: one reconcile for a pool at a time. Sightings and roster are shared with the handlers of the watches, each
// under a mutex of its own that is never held across I/O. Every write carries the resourceVersion that it was decided on.
package poolcut
