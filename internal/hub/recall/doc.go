// Package recall remembers the cloud's last answers to single reads: an object, a discovery document, a Pod's token.
//
// Invariants: nothing is answered that the cloud has not said; an answer from memory says so. What one client has read is
// never answered to another. What a client has written is not answered as it was before. No token that somebody has shown is
// stored: the cloud repeats it in its answer to a TokenReview, which is kept without it and answered with the request's own.
package recall
