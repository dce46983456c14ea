// Package follow keeps one replica for each selection, restored, fed, saved and served; whoever asks for a selection gets the
// same one, for as long as somebody needs it.
//
// A selection is followed for one of three: for the hub itself (the pool's resources, and what service topology has to
// know), for the node's programs, or for a caller with credentials of its own. The hub's are fixed: Change says which there
// are, and they stay. A program's begin with its first list or watch, and end some minutes after its last.
//
// Each replica has one feed and one saver, and both have ended before the next replica of the same selection is restored.
// Set.Run owns all goroutines.
//
// Invariants: nothing is answered that the cloud has not said; what was never known is refused with 503, never answered as
// if it were not there. A pool resource is answered by its replica or not at all, never half by the replica and half by the
// cloud; one that leaves the set ends its clients' watches, and their next requests, which carry the cloud's revisions, go
// to the cloud. A program whose selection the cloud refuses gets the cloud's own answer. What is read with the node's
// identity is answered only to those who act with it: a caller with credentials of its own has selections of its own, which
// are read with these.
package follow
