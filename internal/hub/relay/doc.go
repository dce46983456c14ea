// Package relay lends a node's line to the cloud to the other nodes of its pool, whose own lines are down.
//
//	hub of A, whose line is down                hub of B, whose line is up
//	  upstream's detour ── Client ── TLS ──────▶ Server ── B's own way ──▶ API server
//	        └────────────── A's own TLS, end to end ───────────────────────────┘
//
// Client asks all coordinators that it reaches which neighbours relay (edge.QueryRelaying): a neighbour may reach one alone. It
// chooses one of them, and asks it for a tunnel (HTTP CONNECT). It asks before it needs one, and remembers the answer in a file.
// While it finds nobody it pauses, up to 30 s, so what a cut costs the others does not grow with the pool. Server opens the
// tunnel to an API server of its own hub's configuration, and to nothing else. Both show the certificate that their pool's
// authority has signed for hubs, so no other pool, and nobody outside, gets further than the handshake.
//
// What goes through is TLS between the relayed hub and the API server: B lends its line, not its identity, and can read nothing
// and change nothing. It can end a connection, and hold it up.
//
// Lending puts the two together for a hub: where they are, what for, and how much. Neighbours know each other by what the pool's
// authority signs for hubs that serve Pods, and hear of each other at the coordinator. So a hub without a coordinator, or without
// an address at which it serves Pods, neither lends nor borrows: its Lending exists all the same, and does nothing. At the same
// port whoever asks for a coordinator of the pool is passed on to one. A Lending is made in two steps, as the cloud is reached by
// a Detour over it, and it lends the line to the cloud.
//
// Invariants: a Server relays only while its own line is up by itself, so no two hubs relay for each other. It holds a bounded
// number of tunnels, in all and for each neighbour, and carries a bounded number of bytes in a second and in a day. A Client
// sends nothing to a neighbour whose certificate is not that neighbour's.
//
// The alternative was to forward requests instead of bytes. B would have seen A's Secrets and tokens, and the cloud B's identity
// (docs/adr/0047-relay.md).
package relay
