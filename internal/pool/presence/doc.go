// Package presence tells the pool's hubs, while they can't ask the cloud, what they need to know of each other's Pods and nodes
// so that endpoints follow the Pods: address, readiness and node of each Pod, and which nodes have fallen silent. A hub may not
// read the Pods of other nodes, whose specs have commands, arguments and environments. Who asks is told which nodes relay.
//
// The Pods are those that their nodes' hubs have pushed, as package nodeobjects has judged them; a node renews as package access
// sees it, and relays where its Lease says. Nothing is written here by anybody for another node.
//
// Invariants:
//   - Silence is counted in seconds in which this process ran: a node whose renewals it could not see because it was stopped or
//     starved itself is not silent. A node that it has never seen to renew is neither silent nor alive.
//   - A stream begins with everything, and each line after that has all that has changed since the one before.
//   - Memory is bounded by what is pushed; what is told is made anew for each stream, and a stream that is not read is ended.
//
// The alternative was a watch of Pods, with a right for all nodes: far more than is needed, and the Node authorizer refuses it.
package presence
