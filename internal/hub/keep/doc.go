// Package keep has for a node's programs what they need when nothing can be reached: what they follow, what they have read,
// and the tokens that were made for their Pods.
//
// What a program lists and watches, the hub follows on its behalf: one replica for each selection, served to it whether or
// not the cloud can be reached, and brought to the disk. Single objects and the like are read at the cloud while it can be
// reached, and its last answer is remembered.
//
// Invariants: nothing is answered that the cloud has not said; an answer from memory says so; what was never known is
// refused with 503, never answered as if it were not there. A program whose selection the cloud refuses gets the cloud's
// own answer. What is read with the node's identity is answered to those who act with it only; a caller with credentials of
// its own has a Set of its own, which is read with these.
package keep
