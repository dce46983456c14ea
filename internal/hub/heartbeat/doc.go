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
//   - A renewal is sent within a fixed time after it reached the coordinator (Forwarder has the sum) or not at all, whatever
//     stopped, stalled or was repeated in between; TCP may deliver it later. Wall clocks play no part.
//   - kubelet sees one Lease, the cloud's: its uid, the last resourceVersion that the cloud gave, kubelet's own spec,
//     and never a mark. The cloud never sees the mark as a label, or the mark of the coordinator's host.
//   - A heartbeat that the cloud took waits for nothing else.
//   - An error of the cloud about one Lease affects only that Lease. A leader gives up its term only for errors that are
//     about itself (fitness).
//   - A hub keeps one Lease in memory. A leader also keeps at most three Leases and some stamps for each delegated node.
//
// Other systems send annotated heartbeats from a timer while kubelet is cut off. We rejected that: it keeps nodes alive whose
// kubelet is dead.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Proxy.known: entered when the cloud, a coordinator's copy or kubelet's own heartbeat has shown the Lease; ends when the
//     cloud shows another, or says that there is none. (TestHubRestartedWhileCut, TestCutAtBirth)
//   - Proxy.gone: entered when the cloud says that there is no Lease; ends when somebody makes one. (TestCutAtRebirth)
//   - Proxy.moved: entered when a marked copy is sent; ends when the cloud takes a heartbeat, after a look at its Lease.
//     (TestCutAndHealed)
//   - Proxy.stamp: entered when a heartbeat is taken; ends when kubelet sends another stamp. (TestStampsAdvance)
//   - copier.known: entered when the coordinator has shown its copy; ends when a write fails. (TestCoordinatorsCopy)
//   - copier.waiting: entered when a copy is submitted; ends when it is written, when a newer one comes, or when copyLongest is
//     over. (TestACopyIsGivenUp, TestSlowCoordinatorDelaysNothing)
//   - gauge.lost: entered when the cloud does not answer a heartbeat; ends when lostCounts is over. (TestGauge)
//   - delegated: entered when a coordinator has a marked copy; ends when no copy is marked, or with the term. (TestForwards,
//     TestStopsWithItsTerm)
//   - sighting.deadline: entered when a renewal is seen; ends when it is written, when a newer one comes, or when maxAge is over
//     at the latest. (TestTranscripts, TestHungWritesAreBounded)
//   - refusal.until: entered when the cloud refuses a node's Lease; ends when its pause is over, after refusedMax at the latest,
//     or when the cloud takes it; forgotten after another refusedMax. (TestTranscripts, TestRefusalsAreForgotten)
//   - fitness.since: entered when the cloud does not serve a write; ends when it takes one, with the term when patience is over,
//     or when there is nothing to write for as long. (TestFitness)
//   - Forwarder.asking: entered when the cloud refuses a Lease as if this hub had no right; ends when it says whether it has.
//     (TestTheRightIsAskedForAgain)
package heartbeat
