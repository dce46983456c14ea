// Package relay lends a node's line to the cloud to the other nodes of its pool, whose own lines are down.
//
//	hub of A, whose line is down                hub of B, whose line is up
//	  upstream's detour ── Client ── TLS ──────▶ Server ── B's own way ──▶ API server
//	        └────────────── A's own TLS, end to end ───────────────────────────┘
//
// Client asks the coordinators which neighbours relay (edge.QueryRelaying). It asks one after the other until it knows enough
// neighbours, because a neighbour may reach only one coordinator. It chooses a neighbour, and asks that neighbour for a tunnel
// (HTTP CONNECT). It keeps the list of neighbours on the hub's disk, and updates the list before it needs one. While no neighbour
// relays, Client pauses between tries, up to 30 s.
//
// Server opens a tunnel to an API server of its own hub's configuration, and to nothing else. Both sides show a certificate
// that their pool's authority has signed for hubs, so other pools and outsiders fail at the handshake.
//
// The tunnel carries TLS between the relayed hub (A) and the API server. The neighbour (B) lends its line, not its identity,
// and can neither read nor change anything. It can end a connection, and delay it.
//
// Lending combines Client and Server for one hub. Neighbours find each other at the coordinator. They verify each other by the
// certificates that the pool's authority signs for hubs that serve Pods. So a Lending does nothing on a hub without a
// coordinator, or without an address at which it serves Pods. On the relay's port, a Passer also connects clients that ask for a
// coordinator of the pool to that coordinator. A Lending is made in two steps, because the link to the cloud needs the Lending's
// Detour, and the Lending needs that link.
//
// Invariants:
//   - A Server relays only while its own line is up, and not while its link is itself relayed. So no two hubs relay for each
//     other.
//   - A Server bounds its tunnels, and the bytes that it carries in a second and in a day, in total and for each neighbour.
//   - A Server relays only for nodes that the cloud, by its last word, counts among the pool's nodes and has not denied.
//   - A Client sends requests only over connections whose other end has shown the certificate of the chosen neighbour's hub.
//
// The alternative was to forward requests instead of bytes. B would have seen A's Secrets and tokens, and the cloud would have
// seen B's identity (docs/adr/0047-relay.md).
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - search.resumes: entered when no neighbour is found; ends when its pause is over, longPause at most, or when a tunnel works.
//     (TestAnHourWithoutALine)
//   - search.lost: entered when no neighbour is found; ends when a tunnel works; until then coordinators are asked before each
//     try. (TestAnotherTakesOver)
//   - search.named: entered when coordinators name neighbours; ends when they name others; the hub asks them when keepEvery is
//     over. (TestKnownBeforeNeeded, TestWhatIsKept)
//   - search.asked: entered when the coordinators are asked; ends when askedFor is over, for Run when half of keepEvery is over.
//     (TestKnownBeforeNeeded)
//   - failures: entered when a neighbour fails; ends when it works, or when forget is over. (TestFailures)
//   - borrowers.tunnels: entered when a tunnel is opened; ends when it is closed. (TestPlaces)
//   - borrowers.spent: entered when tunnels have carried Limits.BytesPerDay; ends when the day is over. (TestAllowance)
//   - borrower.spent: entered when one neighbour's tunnels have carried its share of BytesPerDay; ends when the day is over.
//     (TestAllowance)
//   - Server.word: entered when the cloud says which nodes the pool has; ends when the cloud says something else, which the hub
//     notices when a neighbour asks, or when lookEvery is over. (TestWhoIsGone)
//   - errIdle: entered when a tunnel carries nothing; ends when something comes, or with the tunnel when idleTimeout is over.
//     (TestATunnelEndsWhenNothingComes)
package relay
