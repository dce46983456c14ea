// Package fleet makes metrics of what hubs report with their pools' leaders, so that nobody has to scrape the edge: nodes
// answer no call from the cloud, and a hub's own metrics are for its node's root.
//
// Of each pool the valid report of the lowest slot counts, a Lease that edge.PoolName.ReportLease names, which
// coordinator-controller has in its cache for other reasons: sums of several leaders can't be added, since they are about the
// same hubs. Metrics are made of it when they are collected: there is no loop, no queue, and no write. What a pool's links have
// carried is counted on from one report to the next, and a new leader's count begins at zero.
//
// The number of series is bounded: SeriesOfPool for each pool, MostNodes for nodes, and some dozens for all together. A node
// has series only while something is wrong with it. Whoever reports may lie, so each name is checked against the nodes that
// the cloud knows in that pool, and what is counted has bounds (edge.ParsePoolHubs).
//
// The alternatives are in docs/adr/0058-sight.md.
package fleet
