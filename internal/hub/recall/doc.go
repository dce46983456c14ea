// Package recall remembers the cloud's last answers to single reads: an object, a discovery document, a Pod's token.
//
// Invariants: nothing is answered that the cloud has not said; an answer from memory says so. What one client has read is
// never answered to another. What a client has written is not answered as it was before. No token that somebody has shown is
// stored: the cloud repeats it in its answer to a TokenReview, which is kept without it and answered with the request's own.
//
// # How long an answer holds
//
// Tenure says how long what the cloud said of a user holds while the cloud cannot be asked.
//
// What it said of a Pod of this node, who is told by the token's claims, holds for as long as the node has that Pod, however
// long ago it was said, and whether or not the token has expired: kubelet cannot get another one. It goes with the Pod. What it
// said of anybody else holds for TenureConfig.Limit at most.
//
// Invariants: no restart, no power cut and no clock that steps makes a Stamp younger than it is by more than the time in which
// the machine was off and its clock did not show it. A Stamp whose age cannot be known is too old. Nothing is given up because
// it is not known which Pods there are.
package recall
