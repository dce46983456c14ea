// Package plugin is `kubectl yurt`. It answers an operator's questions about pools and their nodes. It reads the cloud's objects
// or, with a pool's own kubeconfig and no cloud, those of the pool's coordinator.
//
// gather.go reads objects, and follow.go keeps them up to date. pools.go, problems.go, why.go and check.go are pure and interpret
// them. show.go and print.go show the results, with kubectl's own printers. bundle.go packs all of it into an archive, and
// redact.go removes what is secret. command.go is the command line. ui.go and link.go show a pool's page, and ask.go asks for a
// viewer's certificate. The plugin writes nothing but that request, its caller's files, and links to the page, which its
// coordinator keeps.
//
// Nodes write times by their own clocks, and the plugin counts ages by the caller's clock. So where a controller has already
// judged by one clock, the plugin shows ages but does not judge by them.
package plugin
