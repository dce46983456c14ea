// Package recall remembers the cloud's last answers to single reads: an object, a discovery document, a Pod's token.
//
// Invariants:
//   - Every answer from memory was the cloud's, and is marked as an answer from memory.
//   - One client's answer is never given to another client.
//   - After a client has written an object, it does not get the answer from before.
//   - No token that a client has shown is stored. The cloud repeats the token in its answer to a TokenReview; the answer is
//     stored without it, and the request's own token is put back.
//
// # How long an answer holds
//
// Tenure decides how long the cloud's answer about a user holds while the cloud cannot be asked.
//
// An answer about a Pod of this node (known by the token's claims) holds for as long as the node has that Pod. Its age does not
// matter, nor does the token's expiry, because kubelet cannot get another token. The answer is forgotten with the Pod. An
// answer about any other user holds for TenureConfig.Limit at most.
//
// Invariants:
//   - A restart, a power cut or a clock step makes a Stamp look younger only by time in which the machine was off and its
//     clock did not run.
//   - A Stamp whose age cannot be known is too old.
//   - No answer is forgotten because the node's Pods are not known yet.
package recall
