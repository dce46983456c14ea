// Package state tells the pool's hubs the pool's state. Each hub reads one stream of lines. Every hub hears who leads, and what
// the leader declares current, from the two Leases that say so. The hub of the node that leads hears all heartbeats. A hub that
// can't ask the cloud hears which nodes are silent, and which Pods there are, so that endpoints follow the Pods. Of a Pod it
// hears address, readiness and node. On request a hub also hears which nodes relay.
//
// The Pods are those that their nodes' hubs have pushed and package shareserver has accepted. Package access reports which nodes
// renew their Leases, and where those say that they relay. The Leases are followed as they are stored. No node writes anything
// here for another node.
//
// Invariants:
//   - Silence is counted in seconds in which this process ran. No node becomes silent while this process is stopped or starved,
//     because it could not see renewals. A node that was never seen to renew is neither silent nor alive.
//   - A stream begins with everything. Each later line has all that has changed since the line before. A leader that begins a
//     stream anew hears each change of a heartbeat once, and can tell a change from what was there before.
//   - Only the hub of the node that the stored election Lease names hears of heartbeats here.
//   - Memory is bounded by what is pushed and stored. Lines are made for each stream, and a stream that is not read is ended.
//
// The alternative was that hubs watch Leases and Pods, for which all nodes would need the right. For each watch kube-apiserver
// opens a watch of etcd, which decodes each change again (docs/adr/0081-one-stream.md). Pods show far more than is needed, and
// the Node authorizer refuses them.
package state
