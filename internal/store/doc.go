// Package store is a hub's disk. It keeps what the node's clients have read. A collection has the objects of one list or watch
// of one client, complete as of a revision. A blob is one small value. A Sink fills a collection, and Load reads it. A replica
// that begins with the result of Load resumes its watch at that revision.
//
// All of it is one file, an append-only log of frames:
//
//	| frame of key A | frame of key B | ... | commit || frame of key A | commit |   ...
//	 ──────────────── one batch ───────────────────      synced, and only then the next
//
// A key names a collection or a blob. One frame begins a key's state, and more frames may add to it. Each of these names the
// frame before it. Memory holds where the frames are, not their content. When more than half of the file, and more than 4 MiB, is
// garbage, a compaction writes the states into a new file, which replaces the old one.
//
// A Sink writes behind. The changes that are queued become one batch, which has only the last state of each object, because a
// sync for every event would wear out an SD card. A single change is written after a second. A collection that keeps changing is
// written ever less often: at the slowest every 15 s, or after 1 MiB. A crash costs only what was not written yet. Of removals
// that must last (Config.Prompt), it costs those of the last 3 s at most.
//
// Invariants:
//
//   - Load returns exactly what the collection was at its revision, or a miss with a reason. A frame has a checksum of its offset
//     and its head, and the head has a checksum of the body. So a frame that was moved, cut or changed does not count.
//   - A batch counts as a whole or not at all. A power cut may leave the last batch incomplete. That batch is cut off, and Health
//     says so. If anything is missing before the last batch, that is corruption, which costs the keys to which it belonged. If a
//     frame's head is lost, nobody can tell its key. Then the corruption costs each key, unless a later frame of the key shows
//     that its state is whole.
//   - The disk never holds a state with a gap. When writing fails, the queue is dropped, and the Position of its Sinks is 0. The
//     Position of every Sink that is used while the disk can't be written is 0, too. Such a Sink then takes only a Replace, and
//     writes only what differs. After a failure nothing is believed: the file is opened anew and verified as a whole.
//   - Bytes that are written never change, so reading needs no lock. A reader whose file is replaced by a compaction reads the
//     new one.
//   - What is secret (Config.Secrets) is encrypted before it is written, and bound to its key and revision. Anything encrypted
//     with another encryption key is a miss.
//   - Nothing is unpacked before its checksum has been found right.
//   - A collection that the node needs (Need) is never removed to make space or for its age. Age counts only the time in which
//     the cloud could be asked (Online), by a clock that the file keeps. Until Need and Online are called, nothing is removed for
//     its age.
//   - One process has the directory, by a lock on it. One goroutine at a time writes, by a token. No I/O happens under mu.
//
// Rejected: a file for each object. It costs several blocks and syncs for each object, and several files never have one common
// state. Rejected: bbolt. Its pages cost twice as many bytes, and it needs a verifier of its own before it may see a file
// (docs/adr/0076-the-disk-is-a-log.md).
package store
