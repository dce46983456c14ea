// Package bench measures what a hub costs, in a lab of real components: latency, requests per second, watches, large
// lists, heartbeats, memory and processor time; and how soon a coordinator is ready.
//
// The load comes from outside the measured programs, and from where their clients are: a process on a node's own
// network (Load). It asks the cloud's API server directly with the node's certificate, as a node without a hub would, asks
// it through the hub, and asks it through Caddy in the hub's place: what a plain proxy costs there is the floor, and budgets
// are ratios to that (docs/adr/0051-the-floor.md). It asks all of them in turn, in many short rounds of one run, and each
// round begins with another way. So other work of the machine disturbs all alike, and the ratio of a round's two figures
// holds where the figures don't. The report has the median of the rounds.
//
// A benchmark is not a test: a figure over its budget is marked, and nothing fails.
package bench
