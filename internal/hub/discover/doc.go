// Package discover finds the pool's coordinator: at the place that coordinator-controller tells the pool's nodes in a
// ConfigMap (edge.PoolName.DiscoveryConfigMap).
//
// Target is the decision what a ConfigMap says, and refuses one that is another pool's or nobody could use; Finder follows
// the ConfigMap at the cloud, and remembers what it said in a file, so that a hub which starts while it is cut off finds its
// coordinator.
//
// Invariants: only the cloud's word that the ConfigMap was deleted, or minutes of refusing to show it or of listing none, ends
// what is known; an error, a bad ConfigMap, a cloud that is empty for a moment or out of reach does not. The coordinator's
// certificate is verified for a name that is the pool's own, by the authority that the same ConfigMap names, so that an address
// that is now another machine's leads nowhere.
//
// The Service of the coordinators was the alternative. Its address needs kube-proxy, which needs the hub; and it does not
// say whom to trust.
package discover
