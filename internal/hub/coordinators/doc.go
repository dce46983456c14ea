// Package coordinators finds the pool's coordinators, and decides which of them a hub works with.
//
// # Where they are
//
// A Finder finds the pool's coordinator. coordinator-controller tells the pool's nodes where it is, in a
// ConfigMap (edge.PoolName.DiscoveryConfigMap).
//
// Read decides what a ConfigMap says, and refuses one that is another pool's or that nobody could use. A settings.Notice
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
//
// # Which one is home
//
// Home decides which of its pool's coordinators a hub works with.
//
// A pool has up to three coordinators, in slots. They know nothing of each other. Every hub sends its heartbeats and its node's
// objects to all of them, and has one home among them: the lowest slot that it reaches. What is said of the coordinator elsewhere
// is about home. Hubs that see the same coordinators have the same home, without asking each other.
//
// The others are standbys. Who leads the pool at its home also takes the election Lease at each standby, forwards the heartbeats
// that come there, and keeps the pool's resources there, so that a standby has all that a home has, current, over the LAN alone.
// When home dies, its hubs find the same leader at the next slot, if it lives; else they elect there. A standby that the leader
// does not reach is led by another, until the leader comes (docs/adr/0070-who-leads-at-a-standby.md).
//
// Machine decides where home is, and Stand where a hub stands for election; both are pure. Home is the I/O around them.
//
// Invariants:
//   - Home is left at once when it can't be reached and another can, and when two copies in a row were not taken there. It is
//     left for a lower slot, which has come back, only when that one has been up for a while and has all that it is to have: a
//     coordinator that comes and goes moves nobody often.
//   - A coordinator that some hub with a line reaches is led, whatever that hub's home is and whoever leads there. While all
//     reach all, the leader at home leads everywhere.
//   - A request of Transport ends when home changes: what a caller hears of one coordinator is never mixed with another's.
//
// That two hubs lead at the same time does no harm (docs/adr/0055-standbys.md). A quorum among the coordinators was the
// alternative. It needs three machines for what one can do, and ends when two of them are gone.
package coordinators
