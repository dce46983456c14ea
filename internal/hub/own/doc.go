// Package own keeps this node's own objects in the pool's coordinator: its Node, its Pods, the ConfigMaps (and, if that is
// switched on, the Secrets) that they use, and the Events that its programs write. So people on site see them with kubectl,
// whether or not the cloud can be reached.
//
// Nothing is read from the cloud for it but the Pods' ServiceAccounts, an hour apart: the Node, the Pods and what else they use
// are in the replicas that the hub follows for kubelet, and the Events are what the cloud has answered to those who wrote them.
//
// Pusher.Run owns two goroutines. The first pushes: it knows what the coordinator has of this node, at which revisions,
// compares that with what the replicas have now, and pushes the difference. What it knows it has from asking; after each push
// the coordinator names the state that came about, and takes the next push only on top of that. So after a restart of either
// side, a lost answer, or anything else that it has not done itself, it is told so, and asks. The second reads the
// ServiceAccounts of the node's Pods. What the node says itself while the cloud does not hear it is the overlay's.
//
// Invariants:
//   - An object is pushed as the cloud has written it, at the cloud's revision, and never one that is older than what the
//     coordinator has. What is shown on top of it is pushed as such, and goes when the cut is over.
//   - No revision of the coordinator comes to the node's programs, nor by them to the cloud.
//   - An object is given up only because a replica that is complete, and newer than the object, does not have it; or
//     because this node is no longer of this pool.
//   - What is unknown is left as it is: a hub that starts gives up nothing before its replicas are there.
//
// A stream that follows on from a position, as the leader's push of the pool's resources, was the alternative. But what a
// node's Pods use comes from hundreds of small replicas, each at a position of its own; and all of it is some hundred
// objects, which are compared in microseconds.
package own
