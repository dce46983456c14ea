// Package config holds a hub's configuration: the node's own settings, from flags and a file, and the pool's settings as
// defaults below them.
//
// A Config is the node's own settings. AddFlags, Versioned and Given read them from flags and from a YurtHubConfiguration.
// Validate says what is wrong with them. The pool's settings (followed by package settings) apply where the node sets nothing.
// sharedSettings is the table of settings that a pool may have. InForce combines the node's and the pool's settings, and
// tells the running hub when they change.
//
// Invariants: a Config is only values; nothing here opens files, starts goroutines or sends requests. Unusable settings change
// nothing. The pool's and the node's settings are validated together, as the hub would run with them.
package config
