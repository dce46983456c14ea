// Package fleet exports metrics from what hubs report to their pools' leaders. So nobody has to scrape the edge, where nodes
// answer no call from the cloud, and a hub's own metrics are only for root on its node.
//
// A pool's leaders report in Leases with the names of edge.PoolName.ReportLease. coordinator-controller caches these Leases for
// other reasons. If a pool has several leaders, only the valid report of the lowest slot counts, because all of them report on
// the same hubs. Metrics are computed when they are collected, so there is no loop, no queue, and no write. Each leader reports
// what its pool's links have carried in its term; the increases from one report to the next are added up.
//
// The number of series is bounded: SeriesOfPool for each pool, MostNodes for nodes, and some dozens for all together. A node
// has series only while something is wrong with it. A reporter may lie, so each name is checked against the nodes that the
// cloud knows in that pool, and counts have bounds (edge.ParsePoolHubs).
//
// The alternatives are in docs/adr/0058-sight.md.
package fleet
