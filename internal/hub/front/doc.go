// Package front is where the node's clients reach the hub. It takes API requests, decides where each one
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
//
// # Who answers a request
//
// Decide says who answers an API request. It is pure: a request and a situation in, who answers, in order, out; the
// front asks them.
//
// Nothing else decides it: who is asked first, and who where that one has no answer, follows from the kind of the request, the
// state of the cloud and the state of the coordinator alone (answerers, and testdata/table.txt, which is the whole of it). Those
// who are asked decide whether they have an answer.
//
// # Who is kubelet
//
// Proof is how a node's kubelet and its hub know each other at the hub's own port, on the loopback address, which every
// program of the host can reach and, while the hub restarts, take.
//
// The hub shows a certificate that it has made itself and that kubelet's kubeconfig names as the authority. kubelet shows a token
// that the hub has made as well. Both are files in the directory of the hub's certificates, which only root can read:
//
//	local.pem       certificate and key of the port; local.crt is the certificate alone
//	kubelet.token   what makes a request kubelet's
//	local.lock      held while they are made
//
// Invariants: the token is told apart in a time that does not depend on what was sent; it goes nowhere but from kubelet, or the
// hub itself, to this port; the files are made once, and neither of them ever ends, so that a node with a wrong clock, or one
// that was cut off for a year, still works; who removes a file has a new one made at the next start.
//
// # Callers with tokens of their own
//
// Callers finds out who a caller with a token of its own is, and what it may read here. Guests answers it by that.
//
// It asks the cloud, by TokenReview and SubjectAccessReview, which a node may create. An answer holds for a while, and while the
// cloud cannot be asked, even over restarts, for as long as recall.Tenure says: a Pod whose token expires during a cut gets no
// other, and is still the same Pod.
//
// Invariants: a caller is only who the cloud said that token is, and may only do what the cloud allowed for that action; the
// next answer of the cloud replaces the last; neither memory nor disk holds a token, only its digest; callers with the same
// question share one request, of which at most maxAsking of a kind run at a time, each for at most askFor; an address asks in
// vain mostInVain times a minute.
//
// The alternative was the API server's own delegating authenticator and authorizer. They bring CEL and the API server's
// scheme into every hub, some 10 MB, and forget everything after some minutes even while the cloud cannot be asked.
//
// # What a hub says of itself
//
// HealthHandler serves those who look after a hub. Anybody may know /healthz (the process answers) and /readyz (the hub knows
// whether it reaches the cloud, so that requests get an answer or a clear refusal); only root /status, /metrics, and Go's
// profiles at /debug/pprof/, which say what runs here, for whom, and how the pool does.
package front
