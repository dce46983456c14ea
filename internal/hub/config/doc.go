// Package config is what a hub is told to do: by its node, with flags and a file, and by its pool, under that.
//
// A Config is the node's word. AddFlags, Versioned and Given read it from flags and from a YurtHubConfiguration, and Validate
// says what is wrong with it. What a pool says (package settings follows that) counts where the node says nothing: sharedSettings
// is the table of what it can say. InForce has both, and has the hub take what can change while it runs: Running.
//
// Invariants: a Config is only values; nothing here opens, starts or asks. What can't be used changes nothing. A pool's word and
// the node's are judged together, as the hub would run with them.
package config
