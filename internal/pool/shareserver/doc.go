// Package shareserver takes what hubs push to the pool's coordinator, in two shares. One is the pool's resources, which a leader
// or a filler brings and all hubs read (Mirror). The other is each node's own objects, which its hub brings and people read
// through the API (NodeObjects). One handler (share) takes the pushes of both; each share has its rules.
//
//	                     a push ─▶ share: whose it is, its body, its batches
//	                                 │                │
//	Mirror: who leads, or fills ◀────┘                └────▶ NodeObjects: the claims
//	   │       │                                                    │
//	   │       └─▶ a replica, which hubs read                       │
//	   └──────────────────▶ etcd, by Transaction ◀──────────────────┘
//
// Invariants of both:
//   - The state of a share has a name, and the share takes changes only on top of that state. A hub that knows another state asks
//     for the present one first.
//   - A batch is read to its end before anything is changed. A refused batch has changed nothing.
//   - No older revision replaces a newer one of the same history of the cloud, unless a leader insists.
//   - Objects are in etcd under kube-apiserver's keys as they came: the cloud's own bytes, of the kind and version in which
//     kube-apiserver stores the resource, under the name in the key. A single unreadable object would break every list.
//   - A Transaction stays within etcd's bounds. A commit goes on if its request ends, because nobody knows the outcome of a
//     commit that is given up halfway.
//
// Of the pool's resources:
//   - While a hub leads, only that hub pushes, under its present term. The share checks that before it reads a body, and again
//     before it applies the batch.
//   - An acknowledged revision is in the mirror's replica and, if kube-apiserver serves the resource, in etcd.
//   - While nobody leads, a filler, which has no link to the cloud, may push everything that it has. Its objects count in a
//     filled history (edge.History), which is below all of the cloud's histories. So they replace only older objects that were
//     filled, too, and whatever a leader brings replaces them, object by object.
//   - All objects of a resource belong to one history of the cloud. A push of everything from a later history replaces them,
//     whatever its revision. A push from an earlier history is refused, and so is a watch that resumes in another history.
//   - Deletions come last: objects that a full stream lacks are deleted after the others were written.
//   - Memory is bounded by a quota. A watch whose reader is too slow ends.
//
// Of a node's own objects:
//   - A node can push only its own objects: the claims hold the rules, and say whose each object is.
//   - An object stays as long as a node claims it. A node that is silent, or leaves the pool, loses its claims.
//   - etcd and claims change together. What may not have been written is pushed again. What somebody else has written through the
//     API is left alone.
//
// One alternative was to keep the pool's resources in etcd alone. Its revisions are not the cloud's, so a hub that loses the
// cloud could not resume here (docs/adr/0006-mirror-keeps-cloud-revisions.md). Another was that the leader pushes all nodes'
// objects. Then one node would hold all Pods and Secrets (docs/adr/0014-own-objects.md). A third was to create objects through
// the API, which would give them another UID, creation time and owner. There used to be a handler for each share
// (docs/adr/0079-one-push-protocol.md).
package shareserver
