// Package coordinators finds the pool's coordinators, and decides which of them a hub works with.
//
// # Where they are
//
// A Finder finds the pool's coordinators. coordinator-controller publishes their addresses to the pool's nodes in a ConfigMap
// (edge.PoolName.DiscoveryConfigMap).
//
// Read parses the ConfigMap, and refuses one that is unusable or belongs to another pool. A settings.Notice follows the
// ConfigMap, and stores it on the disk, so that the hub can start without the cloud.
//
// A Seeker searches the LAN for a coordinator that has moved, while neither the coordinator nor the cloud can be reached. It
// accepts a coordinator only if its certificate shows a later generation than the known coordinator's. What the Seeker finds
// counts until the cloud next says where the coordinators are.
//
// Invariant: the hub verifies the coordinator's certificate by the CA in the same ConfigMap, for a name that only this pool has.
// So the hub does not trust another machine that has taken over the coordinator's address.
//
// The alternative was a Service of the coordinators. A Service's address needs kube-proxy, which needs the hub. A Service also
// does not say which CA to trust.
//
// # Which one is home
//
// Home decides which of its pool's coordinators a hub works with.
//
// A pool has up to three coordinators, in slots. They know nothing of each other. Every hub sends its heartbeats and its node's
// objects to all of them. A hub's home is the coordinator with the lowest slot that the hub reaches. Where other pages and
// packages say "the coordinator", they mean home. Hubs that see the same coordinators have the same home, without asking each
// other.
//
// The others are standbys. The leader at home also takes the election Lease at each standby, forwards the heartbeats that come
// there, and keeps the pool's resources there. So a standby has all that home has, and the LAN alone carries it. When home dies,
// its hubs find the same leader at the next slot if that leader lives. Otherwise they elect a leader there. If the leader at home
// does not reach a standby, another hub leads at that standby until the leader comes (docs/adr/0070-who-leads-at-a-standby.md).
//
// Machine decides which slot is home, and Stand decides at which slots a hub campaigns. Both are pure. Home does the I/O.
//
// Invariants:
//   - If a hub can't reach home, or home refused two copies in a row, the hub leaves at once for another coordinator that it
//     reaches. It returns to a lower slot only once the coordinator there has been up for a while and is complete. So an unstable
//     coordinator seldom moves hubs.
//   - If some hub with a link to the cloud reaches a coordinator, some hub leads there. That depends neither on any hub's home
//     nor on who leads at home. While all hubs reach all coordinators, the leader at home leads everywhere.
//   - A request of Transport ends when home changes, so that a caller never mixes two coordinators' content.
//
// Two leaders at the same time do no harm (docs/adr/0055-standbys.md). The alternative was a quorum among the coordinators. It
// needs three machines where one would do, and stops when two of them are gone.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Machine.at: entered when home is lost and a higher slot is up; ends when a lower slot is complete and has been up for
//     settled. (TestMachine, TestHome)
//   - place.failing: entered when a coordinator refuses two copies of the heartbeat in a row; ends when it takes one.
//     (TestFailing)
//   - place.is: entered when a slot below home says that it is complete; ends when it says otherwise; the hub asks it when
//     askEvery is over. (TestHome)
//   - Stand.vacant: entered when nobody leads at a slot; ends when somebody does; this hub campaigns there when vacancy is over.
//     (TestStand, TestStandsWhereNobodyLeads)
//   - held: entered when another hub leads at home; ends when it leads there no more; this hub leaves its own slot to that hub
//     when held is over. (TestLeave)
//   - Finder.found: entered when a coordinator of a later generation is found on the LAN; ends when the cloud says where the
//     coordinators are. (TestTheCoordinatorIsFoundOnTheLAN)
//   - Seeker: entered when neither the cloud nor the coordinator can be asked; ends when one of them can.
//     (TestWhileSomebodyCanBeAsked)
package coordinators
