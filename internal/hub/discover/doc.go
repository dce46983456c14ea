// Package discover finds the pool's coordinator. coordinator-controller tells the pool's nodes where it is, in a
// ConfigMap (edge.PoolName.DiscoveryConfigMap).
//
// Read decides what a ConfigMap says, and refuses one that is another pool's or that nobody could use. Finder follows the
// ConfigMap at the cloud and remembers in a file what it said, so that a hub that starts while cut off finds its coordinator.
//
// Invariants: a Finder forgets the coordinator only when the cloud says that the ConfigMap was deleted, or when for minutes it
// refuses to show one or lists none. An error, a bad ConfigMap, or a cloud that is out of reach or empty for a moment changes
// nothing. The hub verifies the coordinator's certificate for a name that is the pool's own, by the authority that the same
// ConfigMap names, so that an address that is now another machine's leads nowhere.
//
// The alternative was a Service of the coordinators. Its address needs kube-proxy, which needs the hub, and a Service does not
// say whom to trust.
package discover
