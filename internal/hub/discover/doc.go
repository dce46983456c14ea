// Package discover finds the pool's coordinator. coordinator-controller tells the pool's nodes where it is, in a
// ConfigMap (edge.PoolName.DiscoveryConfigMap).
//
// Read decides what a ConfigMap says, and refuses one that is another pool's or that nobody could use. A notice.Notice
// follows it, and remembers it for a start while cut off.
//
// A Seeker looks for a coordinator that has moved on the LAN, while neither it nor the cloud can be reached. What it finds is
// younger than what was known, by its certificate, and counts until the cloud's next word.
//
// Invariant: the hub verifies the coordinator's certificate for a name that is the pool's own, by the authority that the same
// ConfigMap names, so that an address that is now another machine's leads nowhere.
//
// The alternative was a Service of the coordinators. Its address needs kube-proxy, which needs the hub, and a Service does not
// say whom to trust.
package discover
