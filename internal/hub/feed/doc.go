// Package feed keeps one sink, a hub's replica of a resource, fed from one source at a time: the cloud, the pool's
// coordinator, or none.
//
// Machine decides everything, without I/O, a clock or chance of its own: Step takes an Event and returns a Decision. It keeps
// what the sources said lately (past), and what it doubts; Choose says what is best in a Situation. Feed is the I/O around it:
// one goroutine looks at the surroundings, steps, and does what the Decision says; one more reads. Coverage says which resources
// the leader keeps complete in the coordinator.
//
// Invariants:
//   - The sink is fed by one attempt at a time; the next begins when the last has ended. An attempt lists or resumes,
//     never both, and after each it is decided anew.
//   - A change of source resumes at the sink's position. A list is asked for only when the sink has nothing, or when
//     the source says that its history begins later.
//   - The coordinator's mirror is asked before the cloud is listed, whenever it is up: what it gives, however old, is
//     complete as of its revision, and the cloud is resumed from there.
//   - A snapshot older than the sink's position is never applied. The one exception is a cloud whose history was set
//     back, for that is the truth: it must say so in three lists over half a minute.
//   - Nothing is resumed at the cloud before its history is known to be the one that the sink's position counts in (package
//     history). If it is another, all is listed anew, and counts in the new one.
//   - What only the disk says is doubted less than what a source has shown: whoever asks waits for what is so now, and
//     waits at most 10 s longer than the lists take (package doubt).
//   - One list over the WAN at a time for all feeds that share Config.Lists, and none is cut off for a mirror that has
//     refused since.
//   - Nothing waits for a coordinator that is not there, and no wait is longer than a minute; than half of one, if the sink
//     has nothing.
//
// Two sources at once, the second warm, was the alternative: it doubles what comes over the WAN, and a resume costs a
// round trip.
package feed
