// Package role decides which hub leads its pool, and for how long.
//
// Machine is the decision, without I/O: from the state of this hub's two links and from how its own campaign stands
// follows the role, whether to campaign and whether to release. Elector is the I/O around it: an election on the Lease
// kube-system/yurthub in the coordinator, with client-go's elector, and the duty (Config.Lead) that a leader has for
// its term. edge.Term is the fence that the duty asks before it acts.
//
// Invariants:
//   - At most one hub's term is valid at a time, by nobody's wall clock: a term is valid only for so long after its
//     last acknowledged renewal was sent, and shorter than others wait before they take over (timing.go has the sum).
//   - A Lease that is missing is left alone for as long as a term can go on, as after any last renewal: a coordinator
//     that came back empty does not know who leads. Only the last holder itself may make it anew at once.
//   - A term ends in this order: its fence falls, the duty's context ends, the duty returns, the Lease is released. A
//     duty that does not return in time loses nothing but its say: the fence has fallen.
//   - A hub campaigns only while both of its links are up. A leader whose cloud link is no longer up releases at once.
//   - Two processes under one node's name are two candidates; neither takes the other's term for its own.
//   - Run waits for every goroutine that it started, the elector's and the duty's among them.
//
// The elector asks its lock ten times a second; the lock answers from a watch on the one Lease, a follower's only once
// there is something to decide, and writes a renewal once a second. So a follower costs nothing, and a released Lease is
// taken within one period. An election of our own on that watch was the alternative: we would own the subtleties of who
// holds what since when, which client-go has had right for years.
package role
