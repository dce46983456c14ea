// Package roster knows which nodes of a pool reach its coordinator, and tells the cloud: the leader watches the Leases that
// all hubs keep in the coordinator, counts those whose renewals it sees come in, and writes the names into one Lease in the
// cloud (edge.PoolName.ReportLease), as the pool's forwarding user. So the cloud knows, too, who leads.
//
// With it goes what the hubs have carried over their links to the cloud, as they say; a change of that alone is no reason to
// write.
//
// The report is written when it has changed, and once in a minute to say that it still holds. A leader that has just begun
// waits until it has seen every node renew, or for as long as a node's Lease lasts: what it finds says nothing of now.
//
// It has a watch of its own: the forwarder's is of the marked Leases alone, which are none most of the time.
//
// A mark in each heartbeat was the alternative: it would travel over the WAN some hundred times as often as it changes.
package roster
