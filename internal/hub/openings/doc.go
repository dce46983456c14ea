// Package openings tells the cloud who opened what in the pool's Pods through its coordinator. The coordinator has no account in
// the cloud. So while a hub leads, it asks the coordinator for what the cloud does not know yet, writes it as Events about the
// YurtCoordinator, as its own node, and says to the coordinator what it has told.
//
// Invariants:
//   - Each opening reaches the cloud at least once, and as one Event: its name is made of the coordinator's instance and the
//     opening's number, and what it says never changes.
//   - Nothing a coordinator says is believed but as text, which is bounded and quoted.
//   - The cloud gets one Event a second at most, after the first few.
//   - Trouble with it never ends a term: heartbeats are more important.
//
// The alternative was that each node's hub tells of its own Pods, from kubelet's reviews: a thief on the coordinator's node could
// not keep them back, but they name no user, and kubelet asks once in minutes (docs/adr/0033-who-opened-what.md).
package openings
