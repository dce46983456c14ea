// Package plugin is `kubectl yurt`: what an operator asks about pools and their nodes, answered from the objects that the
// cloud has or, with a pool's own kubeconfig and no cloud, from those of its coordinator.
//
// Files: gather.go reads objects, pools.go and why.go say what they mean and are pure, print.go shows it, command.go is the
// command line. Nothing is ever written but a kubeconfig to a file.
//
// Ages are counted by the clock of whoever asks, from times that nodes write by theirs: they are shown, and nothing is
// concluded from them where a controller has judged with one clock.
package plugin
