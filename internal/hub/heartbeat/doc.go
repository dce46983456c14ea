// Package heartbeat carries nodes' heartbeats, the Leases in kube-node-lease, to the cloud, even from nodes whose own link to
// the cloud is cut.
//
// Proxy runs in every hub, and answers kubelet's GET, POST and PUT of its node's Lease. Proxy sends a heartbeat to the cloud, and
// a copy of the heartbeat to each of the pool's coordinators. While the cloud can't be reached, Proxy marks the copies as
// delegated. Forwarder runs in the leader. It follows the copies, and writes the renewals of marked ones to the cloud.
//
//	kubelet ──PUT──▶ Proxy ──────────────────────────────▶ cloud        (link up)
//	                   └──▶ coordinator ──▶ Forwarder ───▶ cloud        (link down: marked; by the leader's link)
//
// Invariants:
//   - Neither Proxy nor Forwarder ever renews a Lease on its own. A renewal is a stamp (renewTime) of kubelet's that differs from
//     the previous stamp. A leader forwards only renewals that it saw happen.
//   - A Lease in the cloud gets kubelet's stamp. If its present stamp is later, it gets the present one plus 1 µs. So neither a
//     clock that was set back nor a stamp from years ahead harms a node.
//   - A leader sends a renewal within a fixed time after the renewal reached the coordinator, or not at all (the type Forwarder
//     names that time). TCP may deliver it later. Wall clocks play no part.
//   - kubelet sees the cloud's Lease: the cloud's uid and last resourceVersion, kubelet's own spec, and no mark. The cloud never
//     sees the mark as a label, and never sees edge.AnnotationCoordinatorHost.
//   - Once the cloud has taken a heartbeat, kubelet's answer waits for nothing else.
//   - An error of the cloud about one Lease affects only that Lease. A leader gives up its term only for errors that are about
//     itself (fitness).
//   - A Proxy keeps the Lease of its own node only: the cloud's version, and at most three for each coordinator. A leader also
//     keeps at most three Leases and some stamps for each delegated node.
//
// Other systems send annotated heartbeats from a timer while kubelet is cut off. We rejected that, because it keeps nodes alive
// whose kubelet is dead.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Proxy.known: entered when the cloud, a coordinator's copy or kubelet's own heartbeat has shown the Lease; ends when the
//     cloud shows another, or says that there is none. (TestHubRestartedWhileCut, TestCutAtBirth)
//   - Proxy.gone: entered when the cloud says that there is no Lease; ends when somebody makes one. (TestCutAtRebirth)
//   - Proxy.moved: entered when a marked copy is sent; ends when the cloud takes a heartbeat, before which the hub reads the
//     cloud's Lease. (TestCutAndHealed)
//   - Proxy.stamp: entered when a heartbeat is taken; ends when kubelet sends another stamp. (TestStampsAdvance)
//   - copier.known: entered when the coordinator has shown its copy; ends when a write fails. (TestCoordinatorsCopy)
//   - copier.waiting: entered when a copy is submitted; ends when it is written, when a newer one comes, or when copyLongest is
//     over. (TestACopyIsGivenUp, TestSlowCoordinatorDelaysNothing)
//   - gauge.lost: entered when the cloud does not answer a heartbeat; ends when lostCounts is over. (TestGauge)
//   - delegated: entered when a coordinator has a marked copy; ends when no copy is marked, or with the term. (TestForwards,
//     TestStopsWithItsTerm)
//   - sighting.deadline: entered when a renewal is seen; ends when the cloud has the renewal, when a newer one comes, or when
//     maxAge is over at the latest. (TestTranscripts, TestHungWritesAreBounded)
//   - refusal.until: entered when the cloud refuses a node's Lease; ends when the cloud accepts it, or when the pause is over,
//     after refusedMax at the latest, or after largePause for a large Lease; forgotten after another refusedMax.
//     (TestTranscripts, TestRefusalsAreForgotten, TestALargeLeaseInTheCloud)
//   - fitness.since: entered when the cloud does not serve a write; ends when the cloud serves one, with the term when patience
//     is over, or when no write begins for patience. (TestFitness)
//   - Forwarder.asking: entered when the cloud refuses a Lease as if this hub had no right; ends when ForwarderConfig.Right
//     returns. (TestTheRightIsAskedForAgain)
package heartbeat
