// Package bench measures what a hub costs, in a lab of real components: latency, requests per second, heartbeats, how soon a
// change reaches a client, memory and processor time; and how soon a coordinator is ready.
//
// The load comes from outside the measured programs, and from the place of their clients: a process on a node's own network
// (Load). It sends its requests in three ways. One goes to the cloud's API server directly with the node's certificate, as on a
// node without a hub. One goes through the hub, and one through Caddy in the hub's place. What such a plain proxy costs is the
// floor, and budgets are ratios to it (docs/adr/0051-the-floor.md). The ways take turns, in many short rounds of one run, and
// each round begins with another way. So the machine's other work disturbs all ways alike, and the ratio of a round's two
// figures holds where the figures don't. The report has the median of the rounds.
//
// A benchmark is not a test: a figure over its budget is marked, and nothing fails.
package bench
