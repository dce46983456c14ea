// Package recall remembers the cloud's last answers to single reads: an object, a discovery document, a Pod's token.
//
// Invariants:
//   - Every answer from memory was once the cloud's answer, and is marked as an answer from memory.
//   - One client's answer is never given to another client.
//   - After a client has written an object, it does not get an answer from before its write.
//   - No token that a client has shown is stored. The cloud repeats the token in its answer to a TokenReview, and the hub stores
//     that answer without the token. When the hub gives the answer to a later request, it puts in the token of that request.
//
// # How long an answer holds
//
// Tenure decides how long the cloud's answer about a user holds while the cloud cannot be asked.
//
// An answer about a Pod of this node (known by the token's claims) holds for as long as the node has that Pod. Neither the
// answer's age nor the token's expiry matters, because kubelet cannot get another token. The answer is forgotten with the Pod.
// An answer about any other user holds for TenureConfig.Limit at most.
//
// Invariants:
//   - After a restart, a power cut or a clock step, a Stamp may look too young only by time in which the machine was off and its
//     clock did not run.
//   - A Stamp whose age cannot be known is too old.
//   - No answer is forgotten only because the hub does not know the node's Pods yet.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Answers.Remember: entered when the cloud answers a single read; ends when the cloud says otherwise, the client has written
//     the object, the Pod is gone, or the disk needs the room for others. (TestWhatIsNotThereIsForgotten, TestWrites,
//     TestAnswersAboutPodsThatAreGoneAreForgotten, TestTheDiskMakesRoom)
//   - Holds: entered when the cloud has answered about a user; ends when TenureConfig.Limit is over, or with the Pod.
//     (TestHowLongItHolds, TestHowLongReviewsHold)
//   - Unsure: entered when the node's Pods are not known and the answer is old; ends when the Pods are known.
//     (TestHowLongItHolds)
package recall
