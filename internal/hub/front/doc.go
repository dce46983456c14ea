// Package front is where the node's clients reach the hub: it takes in API requests, decides with package route where
// each goes, and streams requests and answers of every verb and protocol in both directions.
//
// Invariants:
//   - A request that brings its own credentials travels without the node's certificate, and none travels with both.
//   - What a client says of forwarding (X-Forwarded-*) does not travel on.
//   - Requests in flight are bounded by class, as at an API server; the node's own heartbeats are a class of their own,
//     so that no other client can starve them.
//   - Bodies are never kept: each piece is passed on as it comes, and flushed unless the length is known beforehand. A
//     watch that breaks off upstream is broken off here too, so that its client notices and connects again.
//   - Every failure before an answer is a metav1.Status. It asks the client to try again (Retry-After) only if the
//     server cannot have acted on the request, or if it was a read.
package front
