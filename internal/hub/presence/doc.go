// Package presence finds out what the pool knows of its Pods and nodes while the cloud can't be asked, and has endpoints shown
// so.
//
// This node's Pods are as kubelet last said: to the stand-in, or, before the cut, to the cloud. Those of other nodes the
// coordinator at home tells (edge.PathPresence), and which nodes have fallen silent all coordinators that this hub reaches.
// Nothing of it is followed, or known, while the cloud is there.
//
// Invariants:
//   - What counts of a Pod is kubelet's last word. When the cloud says that a Pod is not ready because its node was not heard
//     from, that is no word of kubelet's: the one before it stays.
//   - Unknown is not silent. A node is silent if a coordinator has seen it renew, and then not for the grace period, and this
//     hub has reached all coordinators that it reaches for as long, and none hears the node: the way from a node to one of them
//     may be cut. Who is silent is so until one that is reached hears it.
//   - What a coordinator has told stays known when it goes or comes back empty, until the one that is there tells otherwise.
//   - When the cloud is back, what is known counts for settling longer: by then kubelets have told the cloud, and its own truth
//     shows the same. Meanwhile it follows kubelets' words, as before.
//
// One goroutine owns what is known. The coordinators' streams and the Services come from others.
package presence
