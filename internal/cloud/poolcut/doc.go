// Package poolcut holds evictions while a whole pool is cut off from the cloud. By default it does so for a pool that has a
// coordinator. The NodePool's annotation says for how long.
//
// When all Leases of a pool stop within one grace period, a cut link is more likely than the death of all nodes at once. Then
// each of these Nodes gets the condition EvictionsHeld. An admission policy (hold-evictions.openyurt.io) then refuses
// kube-controller-manager's evicting taints on such Nodes. No Pod is written. The Nodes are still shown NotReady, with the usual
// consequences. A node speaks when its heartbeats come, directly or through another node. When the duration ends, or a node
// speaks, the condition is withdrawn and Kubernetes evicts as usual:
//
//	                                a held node that speaks                 a node that does not speak
//	no node speaks                  -                                       held, also if it spoke during the hold
//	a node speaks                   held while its condition Ready is       held
//	                                Unknown, then released
//	nodes have spoken for a grace   the same                                released if a witness is there and none hears
//	period                                                                  it, or if nobody can be a witness
//	the duration has ended          released                                released
//
// A witness is a leader whose report is at most a grace period old, and that hears another of the nodes that were cut off
// together. What a leader hears of itself says nothing about the others. The cut nodes may have several leaders, each at another
// coordinator. Then a silent node is released only if none of these leaders hears it. In a pool of two, or without reports,
// nobody can be a witness, and the grace period suffices (docs/adr/0072).
//
// The grace period exists because all nodes come back within a heartbeat or two when a link heals. A Pod that tolerates nothing
// must not be evicted in that time. The period begins anew once nobody speaks, because a single heartbeat that slips through does
// not mean that the link is back. A hold that has ended begins again only for a node that has spoken since.
//
// Time: the verdict must come before kube-controller-manager (1.36, nodelifecycle) taints the first node. kube-controller-manager
// taints a node one node-monitor-grace-period G after the last renewal that it saw. The last renewals before a cut are up to one
// interval apart, which is a quarter of the Lease's duration. So all nodes are silent for us one interval plus our threshold
// after the first node's last renewal. The threshold is 3/4 of --silence-after, which must be less than G and defaults to a
// Lease's duration. Interval and threshold together are one Lease's duration, less than G. With Kubernetes' default times the
// verdict comes 30 s after the cut, 10 s before the first taint. If the verdict comes late nevertheless, we remove a taint that
// is already there, and kube-controller-manager cancels the evictions that it planned. Pods that tolerate nothing are gone by
// then.
//
// Evidence that nodes lived is that we saw them renew their Leases. A program that started after the cut uses other evidence:
// kube-controller-manager called the nodes Unknown within one grace period of each other, by its own clock. The hold then counts
// from that time. Nodes that fell silent long before the others, and deleted Leases, are no evidence. A program that can't see
// the Leases loses its leader election first. Without an election (--leader-elect=false) its writes fail, as its watches do. A
// cut of all pools at once needs no special treatment, because then it is the cloud's own line that is cut. If the API server
// itself stands still, no node is tainted either. kube-controller-manager's own mode for a cluster without Ready nodes evicts
// nothing, and does not conflict with this.
//
// The package is level-based. The Node's condition remembers a hold, which began when the condition became True. The wall clock
// is read only once, when a new leader finds a hold; from then on the monotonic clock measures time. So a clock that is set back
// can lengthen a hold by at most its duration for each new leader. A clock that is set forward can't end a hold while the leader
// stays.
//
// Concurrency: each pool has at most one reconcile under way. The watches' handlers share Sightings, whose mutex is never held
// across I/O. A Lease's Node and a leader's report are read from the cache. Every write carries the resourceVersion that it was
// decided on.
package poolcut
