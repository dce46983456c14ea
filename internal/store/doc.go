// Package store is a hub's disk: what clients of the node have read, as collections (the objects of one list or watch of
// one client, complete as of a revision), and blobs, small single values. A Sink fills a collection, Load reads it, and a
// replica that begins with what Load gave resumes at its revision.
//
// All of it is one file, an append-only log of frames:
//
//	| frame of key A | frame of key B | ... | commit |   | frame of key A | commit |   ...
//	 ──────────────── one batch ───────────────────      synced, and only then the next
//
// A key is a collection or a blob. Its state is a frame that begins it and those that go on from there, each of which names the
// one before. Memory holds where they are, not what is in them. When more than half of the file is garbage, and more than 4
// MiB, the states are written into a new file, which takes the place of the old one (compaction).
//
// A Sink writes behind. What was queued meanwhile goes into one batch, the last state of each object only: a sync for every event
// would wear out an SD card. A change that comes alone is written after a second; a collection that keeps changing ever less
// often, every 15 s in the end or after 1 MiB. A crash costs that progress and nothing else; of what must not come back
// (Config.Prompt), the removals of the last 3 s at most.
//
// Invariants:
//
//   - Load gives exactly what the collection was at its revision, or a miss with a reason. Each frame has a checksum of its
//     offset and its head, which has one of the body, so a frame that was moved, cut or changed is none.
//   - A batch counts as a whole or not at all. Of the last one, which power may have cut, nothing counts if anything is
//     missing; that is cut off, and said. What is missing before is corruption: it costs the keys that it was of. If a frame's
//     head is lost, nobody can tell whose it was; then it costs each key of which no later frame shows that it is whole.
//   - Disk never holds a state with a gap. When writing fails, what was queued is dropped and the Position of its Sink is 0,
//     as is that of every Sink that is used while the disk cannot be written; only a Replace is taken then, and writes what
//     differs. After a failure nothing is believed: the file is opened anew and verified as a whole.
//   - What is written is not changed, so reading needs no lock. A reader whose file is replaced by a compaction reads the new
//     one.
//   - What is secret (Config.Secrets) is encrypted before it is written, and bound to its key and revision. What is encrypted
//     with another key is a miss.
//   - Nothing is unpacked before its checksum has been found right.
//   - Nothing that the node needs is collected (Need), and nothing for its age but by time in which the cloud could be asked
//     (Online), counted by a clock of the file's own. Until somebody says so, all is needed and the cloud cannot be asked.
//   - One process has the directory, by a lock on it; one goroutine at a time writes, by a token. No I/O happens under mu.
//   - Files of other formats are left alone until the cloud has answered.
//
// Rejected: a file for each object, which costs several blocks and syncs for each, and has no state that several files
// share. Rejected: bbolt, whose pages cost twice as many bytes, and which needs a verifier of its own before it may see a file
// (docs/adr/0076-the-disk-is-a-log.md).
package store
