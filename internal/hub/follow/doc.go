// Package follow keeps one replica for each selection, and restores, feeds, saves and serves it. Whoever asks for a selection
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
package follow
