// Package presence tells the pool's hubs about each other's Pods and nodes while they can't ask the cloud, so that endpoints
// follow the Pods. It tells each Pod's address, readiness and node, and which nodes have fallen silent. A hub may not read other
// nodes' Pods themselves, because their specs have commands, arguments and environments. On request it also tells which nodes
// relay.
//
// The Pods are those that their nodes' hubs have pushed and package shareserver has accepted. Package access sees nodes renew,
// and their Leases say where they relay. No node writes anything here for another node.
//
// Invariants:
//   - Silence is counted in seconds in which this process ran. If this process was stopped or starved, it could not see renewals,
//     and no node becomes silent by that. A node that was never seen to renew is neither silent nor alive.
//   - A stream begins with everything. Each later line has all that has changed since the line before.
//   - Memory is bounded by what is pushed. Lines are made for each stream, and a stream that is not read is ended.
//
// The alternative was a watch of Pods, with a right for all nodes. That shows far more than is needed, and the Node authorizer
// refuses it.
package presence
