// Package share brings objects into the pool's coordinator. A leader's Pool brings the shared resources, a Filler brings them
// while no hub can lead, and every hub's Node brings the node's own objects.
//
// # How anything is brought
//
// A coordinator has two kinds of shares: the pool's resources, and each node's own objects. Each state of a share has a name, and
// a push brings the share from one state to the next (package edge has the protocol). Pool, Filler and Node use the same client.
// It asks for the state of a share, pushes what is newer, and takes the next state from the answer. After a failure there is a
// pause, which depends on the refusal, and then the client asks again. A Pool pushes the changes of a replica, or the whole
// replica; a Filler pushes whole replicas; a Node pushes the difference between two states.
//
// # What the pool shares
//
// Pool.Run brings the content of the leader's replicas into the coordinator's mirror for one term. In the Lease
// leader-informer-sync it declares which resources it keeps current there. Each resource has a carrier. A carrier asks for the
// mirror's position, follows its replica from there, and sends the changes in batches on one long request. The answer
// acknowledges each batch with a line while the request continues. One batch is under way at a time; meanwhile the next one
// gathers in the replica. In some cases a carrier pushes everything, in a request of its own: if the mirror is empty, is in
// another history, refuses changes or stays ahead of the replica, or if the replica cannot resume from the mirror's position. One
// more goroutine writes the Lease.
//
// Invariants:
//   - A request begins at the position that the mirror reports. After any failure the carrier asks for the position again before
//     the next request. So a lost answer, a second leader or a coordinator that came back empty costs one more question, and no
//     change is left out.
//   - A carrier sends nothing unless its term is valid at that moment, and breaks off a batch when the term ends. The mirror
//     applies a batch whole or not at all.
//   - A resource is declared only while four things hold: the cloud feeds its replica, or did a few seconds ago; the mirror has
//     acknowledged all that the replica had when the carrier began; no change has waited for its acknowledgement for more than a
//     few seconds; and the mirror itself still confirms its position.
//   - Run returns as soon as its context ends, with all its goroutines, and sends nothing more.
//
// The alternative was a request for each batch. During a rolling update nearly every change is a batch, and the request around it
// costs more than twice as much as the change.
//
// # What a pool has without the cloud
//
// While this hub has no link to the cloud, Filler.Run brings the hub's copies of the shared resources to a coordinator without a
// leader. Usually that is a coordinator that started during a cut and is empty. The Filler takes a turn, by the Lease
// yurthub-filler, pushes everything that is newer than the mirror's content, and gives up the turn. A filler's content counts in
// a filled history (edge.History), which is below all of the cloud's histories. So whatever a leader brings later replaces it.
// The Filler declares nothing current. A hub that has content of its own does not replace it by a filler's. After each hub has
// had its turn, the mirror has the latest state that the pool knows.
//
// # What is this node's own
//
// Node.Run keeps this node's own objects in the coordinator: its Node, its Pods, the ServiceAccounts, ConfigMaps and (if enabled)
// Secrets that the Pods use, and the Events that its programs write. So people on site see them with kubectl, whether or not the
// cloud can be reached.
//
// The hub reads only the Pods' ServiceAccounts from the cloud for this, at least once an hour while the cloud answers. The Node,
// the Pods and their ConfigMaps and Secrets are in the replicas that the hub follows for kubelet. The Events are copies of the
// cloud's answers to the programs that wrote them.
//
// The hub runs one Node (the type of this package) for each coordinator of the pool. A Node asks what its coordinator has of this
// node and at which revisions, compares that with the replicas, and pushes the difference. After each push the coordinator names
// the resulting state, and accepts the next push only on top of that state. After a restart of either side, a lost answer, or a
// change that the Node did not make, the Node asks again. One Accounts reads the ServiceAccounts for all of them. The Overlay has
// what the node says itself while the cloud does not hear it.
//
// Invariants:
//   - An object is pushed at the cloud's revision, unless the coordinator has it at a later one. Its content is the cloud's.
//     During a cut the node's own status replaces the cloud's; such an object is marked, and goes back to the cloud's content
//     after the cut.
//   - No revision of the coordinator reaches the node's programs, or through them the cloud.
//   - An object is deleted at the coordinator in four cases only: this node has left the pool; a complete replica that is at
//     least as new as the coordinator's object lacks it; it is a ServiceAccount, and the cloud says that there is none; or it is
//     an Event that the hub no longer keeps.
//   - A hub that starts deletes nothing before its replicas are there.
//
// The alternative was a stream that resumes at a position, as the Pool's push does. But what a node's Pods use comes from
// hundreds of small replicas, each at a position of its own. To compare some hundred objects takes only microseconds.
//
// # What is written while the cloud does not answer
//
// While the cloud does not answer, a Taker accepts two kinds of writes from kubelet and the node's other programs: statuses,
// which it shows in place of the cloud's, and Events, which it sends to the cloud later.
//
// A Taker accepts nothing else. kubelet still reads what the cloud has said, so it repeats a status until the cloud has it.
// Programs do not repeat Events. These wait in the Taker, also on the disk if there is one, and Taker.Run sends them when the
// cloud is back.
//
// Each request is answered in its own goroutine. Statuses and Events have one lock each, which is never held during I/O. A Node
// reads both through Taker.AddTo, to bring them to the coordinator.
//
// Invariants:
//   - No revision of the coordinator reaches the node's programs, or through them the cloud.
//   - A status is shown on top of one revision of the cloud's object. It goes when the cloud has a newer revision, or some time
//     after the cut.
//   - An accepted Event reaches the cloud once, in its last form, unless it is too old by then, too many Events wait, or the
//     cloud refuses it.
//
// # What coordinators may do with kubelet
//
// Warrants decides what coordinators may do with this node's kubelet. kubelet asks the cloud, through its hub, whether the caller
// of its port may do something (SubjectAccessReview). If that caller is a coordinator, the hub itself always answers. So a
// coordinator's key needs no right in the cloud, and works with kubelets while the cloud can't be asked.
//
// Invariants: Warrants admits only the coordinator of this node's own pool, with a certificate that the cloud has listed in the
// pool's ConfigMap. A hub that has not read that ConfigMap admits nobody. Warrants does not answer about other users, and sends
// no request to a coordinator.
//
// The alternative was a role in the cloud. It would also be valid at the API server, whose nodes/proxy gives access to every
// kubelet of the cluster (docs/adr/0023-coordinator-keys.md).
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - state.acked: entered when the mirror acknowledges a position; ends when the mirror is another instance or stands elsewhere,
//     or when a push of everything fails. (TestTheCoordinatorCameBackEmpty, TestACoordinatorOfBefore)
//   - state.target: entered when a carrier begins, at the replica's position; ends when the mirror has acknowledged it.
//     (TestBehindAnotherLeadersPush)
//   - state.behind: entered when a change waits for its acknowledgement; ends when the mirror acknowledges it; the resource is
//     not declared when stillAcked is over. (TestAMirrorThatStalls)
//   - state.ahead: entered when the mirror is seen ahead of the replica; ends when the replica has caught up; the resource is not
//     declared when stillAcked is over. (TestAMirrorThatStaysAheadIsNotDeclared)
//   - state.over: entered when the mirror is ahead for overAfter; ends when everything is pushed, or when the replica has caught
//     up. (TestAMirrorThatStaysAheadIsPushedEverything)
//   - state.live: entered when the cloud feeds the replica; ends when it does not for stillLive. (TestWhatIsNotLiveIsNotDeclared)
//   - carrier.full: entered when the replica can't resume from the mirror's position, or the mirror refuses changes; ends when
//     everything is pushed. (TestTheReplicaHasForgottenWhereTheMirrorStands, TestRefusals)
//   - carrier.events: entered when a batch is too large for the mirror; ends when batches are taken, each of which may be twice
//     as large, up to maxEvents. (TestRefusals)
//   - hopelessPause: entered when a coordinator refuses a request for a reason that waiting seldom changes; ends when
//     hopelessPause is over, or the answer's Retry-After, of maxRetryAfter at most. (TestACoordinatorOfBefore, TestRefusals)
//   - fillings.last: entered when the mirror has said what it has; ends when it answers again, or when the term ends; after
//     leaseSeconds without an answer, nothing counts as current. (TestFillings)
//   - refusedOffer: entered when a mirror refuses what this hub fills in; ends when offerPause is over, or when the offer or the
//     coordinator is another. (TestWhatIsRefusedIsOfferedAgainLater)
//   - Filler.turn: entered when this hub takes the filler's Lease; ends when it has pushed, when its link is back, or when
//     edge.FillerTurn less turnMargin is over. (TestATurnEndsByItself, TestAFillerStopsAtOnce)
//   - offer: entered when a coordinator refuses an object of this node; ends when refusedPause is over, or when the object is
//     another. (TestRefusedObjects)
//   - Node.state: entered when a coordinator has said what it has of this node; ends when the answer to a push names no state,
//     when the session fails, or when askEvery is over: then the coordinator is asked again. (TestASurprise,
//     TestACoordinatorThatComesBackEmpty)
//   - gatherer.lasting: entered when a coordinator has taken a ConfigMap or Secret; ends when a coordinator refuses the object,
//     as it does when no Pod uses it, or when the hub follows the object again. (TestACoordinatorThatComesBackEmpty)
//   - account.gone: entered when the cloud has no such ServiceAccount; ends when a read finds it again, or when no Pod uses it.
//     (TestAnAccountThatIsMadeLate)
//   - account.due: entered when a ServiceAccount is read; ends when readAccountEvery is over, readAccountRetry after a failure,
//     or readAccountsWithin of the end of a cut. (TestServiceAccountsOfPods, TestServiceAccountsAfterACut)
//   - account.denied: entered when the cloud refuses the first read of a ServiceAccount; ends when the cloud allows one; the hub
//     asks when readAccountFirst is over, then ever more rarely, up to readAccountEvery.
//     (TestAServiceAccountThatIsRefusedAtFirst, TestServiceAccountsThatStayRefused)
//   - statuses.said: entered when kubelet writes a status that the cloud does not get; ends when the cloud has a newer revision,
//     or when settling is over after the cut. (TestWhatKubeletSaysInACut, TestWhatKubeletSaidGoesWithoutACoordinator)
//   - statuses.cutAt: entered when the cloud does not answer; ends when settling is over after it answers.
//     (TestWhatKubeletSaysInACut)
//   - written.waiting: entered when an Event is written that the cloud does not get; ends when the cloud takes or refuses it,
//     when eventLife is over, or when maxKeptEvents others are newer. (TestEventsOfACut, TestEventsThatTheCloudDoesNotTake,
//     TestEventsAreBounded)
//   - written: entered when the cloud has an Event of this node; ends when eventLife is over, when the coordinator refuses it, or
//     when maxKeptEvents others are newer. (TestTakenEvents, TestEventsGoWithoutACoordinator)
package share
