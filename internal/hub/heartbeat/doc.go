// Package heartbeat carries nodes' heartbeats, the Leases in kube-node-lease, to the cloud, even from nodes whose own link to
// the cloud is cut.
//
// Proxy runs in every hub: it answers kubelet's GET, POST and PUT of its node's Lease. It sends a heartbeat to the cloud, and a
// copy of it to each of the pool's coordinators. While the cloud cannot be reached, it marks the copies as delegated. Forwarder
// runs in the leader: it follows the copies, and writes each renewal to the cloud.
//
//	kubelet ──PUT──▶ Proxy ──────────────────────────────▶ cloud        (link up)
//	                   └──▶ coordinator ──▶ Forwarder ───▶ cloud        (link down: marked; by the leader's link)
//
// Invariants:
//   - No kubelet, no heartbeat: neither Proxy nor Forwarder ever renews a Lease on its own. A renewal is a stamp (renewTime) of
//     kubelet's that differs from the previous one. A leader forwards only renewals that it saw happen, and each of them once.
//   - A renewTime is moved forward, never invented. The cloud gets kubelet's stamp or, if that is not later than the cloud's, the
//     cloud's stamp plus 1 µs. So neither a clock that was put back nor a stamp from years ahead harms a node.
//   - A renewal is written within a fixed time after it reached the coordinator (Forwarder has the sum) or not at all,
//     whatever stopped, stalled or was repeated in between. Wall clocks play no part.
//   - kubelet sees one Lease, the cloud's: its uid, the last resourceVersion that the cloud gave, kubelet's own spec,
//     and never a mark. The cloud never sees the mark as a label, or the mark of the coordinator's host.
//   - A heartbeat that the cloud took waits for nothing else.
//   - An error of the cloud about one Lease affects only that Lease. A leader gives up its term only for errors that are
//     about itself (fitness).
//   - A hub keeps one Lease in memory. A leader also keeps at most three Leases and some stamps for each delegated node.
//
// Others send annotated heartbeats from a timer while kubelet is cut off. We rejected that: it keeps nodes alive whose kubelet
// is dead.
package heartbeat
