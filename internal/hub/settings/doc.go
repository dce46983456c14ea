// Package settings learns what a pool says for its hubs, and tells the cloud what this hub makes of it.
// coordinator-controller writes the pool's settings into a ConfigMap (edge.PoolName.SettingsConfigMap) that the pool's nodes
// may read.
//
// Read decides what the ConfigMap says. A Notice follows it, and remembers the last settings that could be used, for
// a start while cut off. Settings has the hub take them, and writes into an annotation of its own Node which generation it
// runs with.
//
// Invariants: settings are taken as a whole or not at all. What cannot be used changes nothing and is not remembered. The
// report is written only when it has changed.
//
// The alternative to the annotation was the report of the pool's leader (lead.Reporter), as for who reaches the
// coordinator. A pool without a coordinator has none, and a hub that is cut off hears of no new settings which a neighbour
// could report.
//
// # How a ConfigMap is followed
//
// A Notice follows a ConfigMap that coordinator-controller keeps in the cloud for the hubs of a pool, and remembers in
// a file what it said, so that a hub that starts while cut off knows it.
//
// Invariants: what a ConfigMap said is forgotten only when the cloud says that the ConfigMap was deleted, or when for
// minutes the cloud refuses to show one or lists none. An error, a ConfigMap that cannot be used, or a cloud that is out of
// reach or empty for a moment changes nothing.
package settings
