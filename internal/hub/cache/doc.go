// Package cache keeps one replica for each selection, and restores, feeds, saves and serves it. Whoever asks for a selection
// gets the same replica, for as long as somebody needs it.
//
// A selection is followed for one of three: the hub itself (the pool's resources, and what service topology has to know), the
// node's programs, or a caller with credentials of its own. The hub's selections are fixed: Change says which they are, and
// they stay. A program's selection begins with its first list or watch, and ends some minutes after its last.
//
// Each replica has one feed and one saver. Both have ended before the next replica of the same selection is restored. Set.Run
// owns all goroutines.
//
// Invariants: the hub answers only what the cloud has said; a request for what was never known gets 503, never an answer that
// it does not exist. A pool resource is answered by its replica or not at all, never half by the replica and half by the
// cloud. When a pool resource leaves the set, its clients' watches end, and their next requests, which carry the cloud's
// revisions, go to the cloud. A program whose selection the cloud refuses gets the cloud's own answer, but for what kubelet
// sees through a view: the cloud answers nothing of that. Only those who act with the node's identity get what was read with
// it: a caller with credentials of its own has selections of its own, read with these credentials.
//
// # Where a replica is fed from
//
// A Feed keeps one sink, a hub's replica of a resource, fed from one source at a time: the cloud, the pool's
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
//   - All feeds that share FeedConfig.Lists list over the WAN one at a time, and no such list is cut off for a mirror that
//     has refused since.
//   - A list over the WAN of all of a resource is read in pages (FeedConfig.Pages). Those that have come are kept when it breaks
//     off, and it goes on after them. All are of one revision: a server that has forgotten it is asked for everything anew, once
//     in one piece, because a list that took too long for its pages may fit into one answer.
//   - Nothing waits for a coordinator that does not exist. No wait is longer than a minute, or half a minute if the sink has
//     nothing.
//
// The alternative was two sources at once, the second one warm. That doubles the traffic over the WAN, while a resume
// costs only a round trip.
//
// # Whether the cloud is still the same
//
// A HistoryKeeper tells whether the cloud's history is still the one that a hub's revisions belong to.
//
// A cloud that is restored from a backup goes on from an earlier revision. A watch that resumes at our revision then
// waits in silence until the new history reaches it, and misses what happened until then. The revisions of two
// histories say nothing about each other, however they compare. So histories have numbers, kept with every revision,
// and whoever sees that the history has changed raises the number.
//
// The proof is a witness: an object whose revision the hub has seen. Objects keep the revision of their last change, so a
// witness that is unchanged proves that the cloud's past goes at least as far as ours. If it has changed since, the hub asks
// the cloud for it as of the revision at which the hub saw it. Only by accident does one revision belong to the same object in
// two histories.
//
// A revision of the node's Lease that falls from one heartbeat to the next proves it, too, for nothing (Went): it is the
// newest of all objects, but one that can't be asked for as of a past revision.
//
//	link lost, a stream broke, content    ┌─ as seen: same history
//	from elsewhere is to be resumed ──▶ list the witness ─┼─ earlier, or the cloud's revision below ours: changed
//	                                      └─ later or gone ──▶ as of then ─┬─ as seen: same
//	                                                                       ├─ other: changed
//	                                                                       └─ forgotten: unknown
//
// Invariants:
//   - The hub resumes nothing at the cloud while the State is not Sure. Streams under way go on.
//   - A number never falls, and everything with one number belongs to one history.
//   - Proof costs one request of a few hundred bytes after each loss, sometimes two; none while all is well.
//   - Unknown is not Changed: what the hub and its pool have may be right. But nothing from before may be resumed at
//     the cloud (Floor), because a resume could miss something.
//
// It cannot see a restore from a backup that was made after the newest witness last changed and after the node's last heartbeat.
// Up to that backup, all that this hub follows was the same in both histories.
//
// The alternative was the uid of the namespace kube-system. It shows that a cluster was rebuilt, as witnesses also do, but not
// that one was restored; and nodes may not read it.
//
// # The disk
//
// A Saver writes what a hub knows to its disk, and reads it back after a restart.
//
// The disk is one more follower of a replica, and holds its content with its revision. So a hub that starts again has
// what it had, and goes on from that revision wherever it can resume, without a list over the WAN.
//
// Invariant: the disk's content is, or was, the replica's content at that revision. The Saver adds changes only to content
// with which the replica itself began, or which was written from the replica while the watch that tells the changes was
// already open. Nothing else is safe: a replica that was emptied may be filled from a cloud whose history was set back, and
// reach the disk's revision with other content.
//
// Disk is what a hub keeps over a restart: a store in a directory, or in memory for a hub without one. It knows when
// everything must be written at once, by which clock unread content grows old, and with which key what is secret is encrypted.
package cache
