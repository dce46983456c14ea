// Package heartbeat carries nodes' heartbeats, the Leases in kube-node-lease, to the cloud, even from nodes whose own
// link to it is cut.
//
// Proxy is every hub's part: kubelet's GET, POST and PUT of its node's Lease. A heartbeat goes to the cloud, and a copy of it
// to each of the pool's coordinators; while the cloud cannot be reached the copies are marked as delegated. Forwarder is the
// leader's part: it watches the marked copies and carries each renewal to the cloud.
//
//	kubelet ──PUT──▶ Proxy ──────────────────────────────▶ cloud        (link up)
//	                   └──▶ coordinator ──▶ Forwarder ───▶ cloud        (link down: marked; by the leader's link)
//
// Invariants:
//   - No kubelet, no heartbeat: neither part ever renews a Lease on its own. A renewal is a stamp of kubelet's that differs
//     from the one before; a leader forwards only what it saw happen, and each renewal once.
//   - A renewTime is moved forward, never invented: the cloud gets kubelet's stamp or, where that would not advance, the
//     stamp that it has plus 1 µs. So neither a clock that was put back nor a stamp from years ahead harms a node.
//   - A renewal is written within a fixed time after it reached the coordinator (Forwarder has the sum) or not at all,
//     whatever stopped, stalled or was repeated in between. Wall clocks play no part.
//   - kubelet sees one Lease, the cloud's: its uid, the last resourceVersion that the cloud gave, kubelet's own spec,
//     and never a mark. The cloud never sees the mark as a label, or the mark of the coordinator's host.
//   - A heartbeat that the cloud took waits for nothing else.
//   - What the cloud says of one Lease is about that Lease. A leader gives its term back only for what is about itself (fitness).
//   - A hub remembers one Lease; a leader remembers at most three small things per delegated node besides.
//
// Others send annotated heartbeats from a timer while kubelet is cut off. We rejected that: it keeps nodes alive whose
// kubelet is dead.
package heartbeat
