// Package front is where the node's clients reach the hub. It takes API requests, asks package route where each one
// goes, and streams requests and answers of every verb and protocol in both directions.
//
// Invariants:
//   - Only what kubelet has proved to be its own is asked with the node's certificate. Its token travels no further. At
//     kubelet's port, who shows nothing gets nothing; whoever brings other credentials is asked for with these alone.
//   - What a client says about forwarding (X-Forwarded-*) does not travel on.
//   - Requests in flight are bounded by class, as at an API server; the node's own heartbeats are a class of their own,
//     so that no other client can starve them.
//   - Bodies stream: each piece is passed on as it comes, and flushed unless the length is known beforehand. Only small
//     request bodies are read whole (BodyBytes). If a watch breaks off upstream, so does the client's, which notices
//     and connects again.
//   - Every failure before an answer is a metav1.Status. It asks the client to try again (Retry-After) only if the
//     server cannot have acted on the request, or if it was a read.
package front
