// Package bench measures what a hub costs, in a lab of real components: latency, requests per second, watches, large
// lists, heartbeats, memory and processor time; and how soon a coordinator is ready.
//
// The load comes from outside of the programs measured and from where their clients are: a process on a node's own
// network (Load), which asks the cloud's API server directly, with the node's certificate, as a node without a hub
// would, and through the hub. Both are asked in turns, in many short rounds of one run, each round beginning with
// another; so whatever else the machine does disturbs both alike, and the ratio of one round's two figures holds where
// the figures don't. What is reported is the median of the rounds.
//
// A benchmark is not a test: a figure over its budget is marked, and nothing fails.
package bench
