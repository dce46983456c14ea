// Package share brings objects into the pool's coordinator: Pool, the leader's, what the pool shares; Filler the same while
// nobody can lead; Node, every hub's, what is this node's own. All speak to the coordinator by one client.
//
// # What the pool shares
//
// Pool.Run brings what the leader's replicas have into the coordinator's mirror, and declares in the Lease leader-informer-sync
// which resources are kept current there. It does so for one term. Each resource has a carrier: it asks where the mirror
// stands, follows its replica from there, and sends what comes in batches on one request, whose answer acknowledges each batch
// with a line while the request goes on. One batch is under way at a time; the next gathers meanwhile. Only a mirror that has
// nothing, or stands outside the replica's history, gets everything, in a request of its own. One more goroutine writes the
// Lease.
//
// Invariants:
//   - A request begins where the mirror says that it stands; whatever goes wrong, it is asked again before the next. So a
//     lost answer, a second leader or a coordinator that came back empty costs a question, and nothing is left out.
//   - Nothing is sent unless the term is valid at that moment, and a batch that is under way breaks off when it no longer
//     is: the mirror takes it whole or not at all.
//   - A resource is declared only while its replica is fed by the cloud, the mirror has acknowledged all that the
//     replica had when its carrier began, nothing has waited for an acknowledgement for more than a few seconds, and the
//     mirror itself still says so.
//   - Run returns as soon as its context ends, with every goroutine that it started, and sends nothing more.
//
// A request for each batch was the alternative. At the rate of a rolling update nearly every change is a batch, and the
// request around it costs more than twice what the change does.
//
// # What a pool has without the cloud
//
// Filler.Run brings what this hub has of the same resources, while it has no link to the cloud, to a coordinator that nobody
// leads: as a rule one that was started in a cut, and is empty. It takes a turn, which the Lease yurthub-filler stands for,
// pushes everything that is better than what the mirror has, and gives the turn up. What it brings counts in a filled history
// (edge.History), below all of the cloud's, so that whatever a leader brings later replaces it; and nothing is declared current.
// Hubs that have something of their own take nothing of it. After each hub has had its turn, the mirror has the latest of what
// the pool knows.
//
// # What is this node's own
//
// Node.Run keeps this node's own objects in the coordinator: its Node, its Pods, the ConfigMaps (and, if that is switched on,
// the Secrets) that they use, and the Events that its programs write. So people on site see them with kubectl, whether or not
// the cloud can be reached.
//
// Nothing is read from the cloud for it but the Pods' ServiceAccounts, an hour apart: the Node, the Pods and what else they use
// are in the replicas that the hub follows for kubelet, and the Events are what the cloud has answered to those who wrote them.
//
// Each coordinator of the pool has a Node of its own. It knows what its coordinator has of this node, at which revisions,
// compares that with what the replicas have now, and pushes the difference. What it knows it has from asking; after each push the
// coordinator names the state that came about, and takes the next push only on top of that. So after a restart of either side, a
// lost answer, or anything else that it has not done itself, it is told so, and asks. Accounts reads the ServiceAccounts of the
// node's Pods, once for all. What the node says itself while the cloud does not hear it is the Overlay's.
//
// Invariants:
//   - An object is pushed as the cloud has written it, at the cloud's revision, and never one that is older than what the
//     coordinator has. What is shown on top of it is pushed as such, and goes when the cut is over.
//   - No revision of the coordinator comes to the node's programs, nor by them to the cloud.
//   - An object is given up only because a replica that is complete, and newer than the object, does not have it; or
//     because this node is no longer of this pool.
//   - What is unknown is left as it is: a hub that starts gives up nothing before its replicas are there.
//
// A stream that follows on from a position, as the Pool's push, was the alternative. But what a node's Pods use comes from
// hundreds of small replicas, each at a position of its own; and all of it is some hundred objects, which are compared in
// microseconds.
//
// # What is written while the cloud does not answer
//
// A Taker takes what kubelet and other programs of the node write while the cloud does not answer: statuses, which it
// shows on top of what the cloud has; and Events, which it sends to the cloud later.
//
// It takes nothing else, and kubelet still reads what the cloud has said, so kubelet repeats a status until the cloud has it.
// Nobody repeats Events. They wait here, also on the disk if there is one, and Taker.Run's goroutine sends them when the cloud
// is back.
//
// Each request is answered in its own goroutine. Statuses and Events have one lock each, which is never held during I/O.
// Node, which brings the node's objects to the coordinator, reads both through Taker.AddTo.
//
// Invariants:
//   - No revision of the coordinator reaches the node's programs, or through them the cloud.
//   - A status is shown on top of one revision of the cloud's object. It goes when the cloud has a newer one, or when the cut
//     has been over for a while.
//   - An Event that was taken reaches the cloud once, in its last form, unless it is too old by then, one of too many, or
//     refused.
//
// # What coordinators may do with kubelet
//
// Warrants says what coordinators may do with this node's kubelet. kubelet asks the cloud, through its hub, whether
// whoever calls it may (SubjectAccessReview). If the caller is a coordinator, the hub answers by itself, always: so a
// coordinator's key needs no right in the cloud, and opens kubelets while the cloud can't be asked.
//
// Invariants: this node's own pool's coordinator alone is let in, with a certificate that the cloud has listed in the pool's
// ConfigMap. A hub that has not read that ConfigMap lets nobody in. Of everybody else nothing is said here, and no coordinator
// is asked about anybody.
//
// The alternative was a role in the cloud. It would be good at the API server as well, whose nodes/proxy leads to every
// kubelet of the cluster (docs/adr/0023-coordinator-keys.md).
package share
