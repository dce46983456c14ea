// Package home decides which of its pool's coordinators a hub works with.
//
// A pool has up to three coordinators, in slots. They know nothing of each other. Every hub sends its heartbeats and its node's
// objects to all of them, and has one home among them: the lowest slot that it reaches. What is said of the coordinator elsewhere
// is about home. Hubs that see the same coordinators have the same home, without asking each other.
//
// The others are standbys. Who leads the pool at its home also takes the election Lease at each standby, and keeps the pool's
// resources there, so that a standby has all that a home has, current, over the LAN alone. When home dies, its hubs find the same
// leader at the next slot, if it lives; else they elect there.
//
// Machine decides where home is, and Campaigns where a hub stands for election; both are pure. Home is the I/O around them.
//
// Invariants:
//   - Home is left at once when it can't be reached and another can. It is left for a lower slot, which has come back, only when
//     that one has been up for a while and has all that it is to have: a coordinator that comes and goes moves nobody often.
//   - A hub stands for election at home, or where it has been elected at home. So two hubs lead at two coordinators only if their
//     homes differ, which takes a LAN that is split, or a moment in which hubs move.
//   - A request of Transport ends when home changes: what a caller hears of one coordinator is never mixed with another's.
//
// That two hubs lead at the same time does no harm (docs/adr/0055-standbys.md). A quorum among the coordinators was the
// alternative. It needs three machines for what one can do, and ends when two of them are gone.
package home
