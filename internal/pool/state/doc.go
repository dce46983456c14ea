// Package state tells the pool's hubs the pool's state, each hub by one stream of lines: who leads, and what the leader declares
// current (the two Leases that say so); for the hub of the node that leads, all heartbeats; and for a hub that can't ask the
// cloud, which nodes are silent, and which Pods there are, so that endpoints follow the Pods. Of a Pod it tells address,
// readiness and node. On request it also tells which nodes relay.
//
// The Pods are those that their nodes' hubs have pushed and package shareserver has accepted. Package access sees nodes renew,
// and their Leases say where they relay. The Leases are followed as they are stored. No node writes anything here for another
// node.
//
// Invariants:
//   - Silence is counted in seconds in which this process ran. If this process was stopped or starved, it could not see renewals,
//     and no node becomes silent by that. A node that was never seen to renew is neither silent nor alive.
//   - A stream begins with everything. Each later line has all that has changed since the line before. Whoever leads and begins a
//     stream anew hears each change of a heartbeat once, and can tell it from what was there before.
//   - Only the node that the stored election Lease names hears of heartbeats here.
//   - Memory is bounded by what is pushed and stored. Lines are made for each stream, and a stream that is not read is ended.
//
// The alternative was watches of Leases and of Pods, with a right for all nodes. Each watch costs kube-apiserver a watch of etcd
// of its own, which decodes each change again (docs/adr/0081-one-stream.md). Pods show far more than is needed, and the Node
// authorizer refuses them.
package state
