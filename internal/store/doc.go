// Package store is a hub's disk: what clients of the node have read, as collections (the objects of one list or watch of
// one client, complete as of a revision), and blobs, small single values. A Sink fills a collection, Load reads it, and a
// replica that begins with what Load gave resumes at its revision.
//
// A Sink writes behind. What was queued meanwhile goes into one transaction of bbolt, the last state of each object
// only: a sync for every event would wear out an SD card. A change that comes alone is written after a second; a collection
// that keeps changing ever less often, every 15 s in the end or after 1 MiB. A crash costs that progress and nothing else; of
// what must not come back (Config.Prompt), the removals of the last 3 s at most.
//
// What is queued are references to bytes that the feeder mostly holds anyway. They are packed (S2) and get their checksum
// when they are written, not when they come.
//
// Invariants:
//
//   - Load gives exactly what the collection was at its revision, or a miss with a reason. Every object has a checksum of
//     its collection, key, revision and bytes; the collection's header has their number and sum, so an object that was
//     lost, doubled or exchanged shows. Blobs are kept likewise, each for itself.
//   - A collection goes from one complete state to the next in one transaction. A large one is written ahead, under a
//     number that no reader knows, in transactions of a megabyte, because bbolt holds a transaction in memory.
//   - Disk never holds a state with a gap. When writing fails, what was queued is dropped and the Position of its Sink is 0,
//     as is that of every Sink that is used while the disk cannot be written; only a Replace is taken then, and writes what
//     differs. After a failure nothing is believed: the file is closed, verified as a whole, and opened anew.
//   - bbolt sees only files whose every page has been verified, and only the writer touches it, guarded against faults of
//     its memory map. All else is read by package pages, with plain reads: it is bounded by the file's size whatever the file
//     says, never waits for a sync, and leaves nothing mapped in the memory of the hub; what the writer leaves there is given
//     back after each transaction.
//   - What is secret (Config.Secrets) is encrypted before it is written, and bound to its place. What is encrypted with another
//     key is a miss.
//   - Nothing is unpacked before its checksum has been found right.
//   - A state that is read stays as it is until the second transaction after it begins, as bbolt reuses pages so; a
//     reader that was slower reads again.
//   - Nothing that the node needs is collected (Need), and nothing for its age but by time in which the cloud could be asked
//     (Online), counted by a clock of the file's own. Until somebody says so, all is needed and the cloud cannot be asked.
//   - One process has the directory, by a lock on it; one goroutine at a time writes, by a token. No I/O happens under mu.
//   - A file that is corrupt is kept aside, one at most, and what is provably intact in it goes on.
//
// Rejected: a file for each object, which costs several blocks and syncs for each, and has no state that several files
// share. Rejected: bbolt's own cursors and check for reading a file that may be corrupt: they follow pages without a bound,
// and panic in goroutines of their own, which nobody can recover. Rejected: a log of our own with a snapshot beside it: it
// would write half as much for scattered changes, and bbolt's crash safety is proved by years of use.
package store
