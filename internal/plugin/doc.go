// Package plugin is `kubectl yurt`. It answers an operator's questions about pools and their nodes from the cloud's
// objects or, with a pool's own kubeconfig and no cloud, from those of the pool's coordinator.
//
// gather.go reads objects. pools.go and why.go, which are pure, say what they mean. print.go shows it. command.go is
// the command line. The plugin writes nothing but a kubeconfig to a file.
//
// Nodes write times by their own clocks, and the plugin counts ages by the caller's. So it shows ages, and concludes
// nothing from them where a controller has already judged by one clock.
package plugin
