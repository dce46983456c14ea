// Package feed keeps one sink, a hub's replica of a resource, fed from one source at a time: the cloud, the pool's
// coordinator, or none.
//
// Machine decides everything, without I/O, a clock or chance of its own: Step takes an Event and returns a Decision. Machine
// remembers what the sources did lately (past) and what it doubts; Choose says what is best in a Situation. Feed is the I/O
// around it: one goroutine looks at the surroundings, steps, and does what the Decision says; another one reads. Coverage says
// which resources the leader keeps current in the coordinator.
//
// Invariants:
//   - One attempt at a time feeds the sink; the next begins when the last has ended. An attempt lists or resumes, never
//     both, and after each the Machine decides anew.
//   - A change of source resumes at the sink's position. A Feed lists only when the sink has nothing, when the source
//     says that its history begins later, or when somebody waits for what is so now (Refresh).
//   - Whenever the coordinator's mirror is up, it is asked before the cloud is listed. What it gives, however old, is
//     complete as of its revision, and the cloud is resumed from there.
//   - A snapshot older than the sink's position is never applied. The one exception is a cloud whose history was set
//     back, because that is the truth. The cloud must say so in three lists over half a minute.
//   - Nothing is resumed at the cloud before its history is known to be the sink's (package history). If it is another,
//     everything is listed anew, in the new history.
//   - A list that contradicts only the disk is doubted for a shorter time than one that contradicts what a source has
//     shown: clients wait for what is so now, and wait at most 10 s longer than the lists take (package doubt).
//   - All feeds that share Config.Lists list over the WAN one at a time, and no such list is cut off for a mirror that
//     has refused since.
//   - A list over the WAN of all of a resource is read in pages (Config.Pages). Those that have come are kept when it breaks off,
//     and it goes on after them. All are of one revision: a server that has forgotten it is asked for everything anew, once
//     in one piece, because a list that took too long for its pages may fit into one answer.
//   - Nothing waits for a coordinator that does not exist. No wait is longer than a minute, or half a minute if the sink has
//     nothing.
//
// The alternative was two sources at once, the second one warm. That doubles the traffic over the WAN, while a resume
// costs only a round trip.
package feed
