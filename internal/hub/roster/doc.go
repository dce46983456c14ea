// Package roster knows which nodes of a pool reach its coordinators, and tells the cloud: a leader watches the Leases that all
// hubs keep in each coordinator where it leads, counts those whose renewals it sees come in, and writes their names into one
// Lease in the cloud, as the pool's forwarding user. That also tells the cloud who leads.
//
// A hub that leads at several coordinators writes one report, of what it hears at any of them, in the Lease of the lowest slot
// (edge.PoolName.ReportLease). So a standby costs the WAN nothing, and two hubs that lead each at another coordinator do not
// write over each other. What is heard in a slot above is taken as far as it is seen: the report does not wait for it.
//
// The report also says how each node's kubelet can be known, by its hub's word (package pin), and how much traffic each hub
// claims to have carried over its link to the cloud. It says how the pool's hubs are together (edge.PoolHubs), which is as short
// for a large pool as for a small one: coordinator-controller makes metrics of it, and nobody has to scrape nodes. That is
// told with each fifth report, and sooner if more than counts has changed. A change of these alone is no reason to write.
//
// A leader writes the report when it has changed, and now and then to say that it still holds: every few minutes, as
// Config.Every says. A leader that has just begun waits until it has seen every node renew, or for as long as a node's Lease
// lasts: what it finds says nothing about now.
//
// The reporter follows these Leases by a watch of its own. The forwarder, which follows the same ones, has another.
//
// The alternative was a mark in each heartbeat, which would travel over the WAN some hundred times as often as it
// changes.
package roster
