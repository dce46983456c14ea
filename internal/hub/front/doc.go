// Package front is the hub's API endpoint for the node's clients. It accepts API requests, decides where each one goes, and
// streams requests and answers of every verb and protocol in both directions.
//
// Invariants:
//   - The hub uses the node's certificate only for requests that kubelet has proved to be its own. The hub passes kubelet's token
//     to nobody. At kubelet's port (10261, for kubelet and the host's other programs), a client without credentials gets
//     nothing. A client with credentials of its own acts with only these.
//   - The hub drops a client's forwarding headers (X-Forwarded-*).
//   - Requests in flight are bounded by class, as at an API server. The node's own heartbeats are a class of their own, so that
//     no other client can starve them.
//   - Bodies stream: each piece is passed on as it comes, and flushed unless the length is known beforehand. The hub reads a
//     request's body whole in three cases: the body is small (BodyBytes), the request writes a resource that views show (up to
//     maxWrite), or the request writes the node's own Lease (package heartbeat, up to 256 KiB).
//     If a watch breaks off upstream, the hub breaks off the client's watch, so that the client notices and connects again.
//   - If a request fails before an answer has begun, the client gets a metav1.Status. The Status asks the client to retry
//     (Retry-After) only if the request was a read, or if the server cannot have acted on it.
//
// # Who answers a request
//
// Decide returns who may answer an API request. It is pure: its input is a request and a situation, its output a list of
// answerers, which the front asks in order.
//
// The order depends only on the kind of the request and on the states of the links. The whole table is in testdata/table.txt, and
// its code in the function answerers. Each answerer then decides whether it has an answer.
//
// # Who is kubelet
//
// With Proof a node's kubelet and its hub authenticate each other at kubelet's port. The port is on the loopback address, so
// every program of the host can connect to it, and can listen there itself while the hub restarts.
//
// The hub presents a certificate of its own making, which kubelet's kubeconfig names as the CA. kubelet presents a token that the
// hub has also made. Both are files in the directory of the hub's certificates, which only root can read:
//
//	local.pem       certificate and key of the port; local.crt is the certificate alone
//	kubelet.token   the token that makes a request kubelet's
//	local.lock      the lock that is held while the other files are made
//
// Invariants: the hub compares the token in constant time. Only kubelet and the hub itself send it, and only to this port. The
// files are made once and never expire, so that a node with a wrong clock, or one that was cut off for a year, still works. If a
// file is removed, the hub makes a new one at its next start.
//
// # Callers with tokens of their own
//
// Callers finds out who a caller with a token of its own is, and what it may read at the hub. Guests uses that to decide which
// callers the hub answers.
//
// Callers asks the cloud, by TokenReview and SubjectAccessReview, which a node may create. An answer is cached for a while. While
// the cloud cannot be asked, an answer stays valid as long as recall.Tenure allows, even over restarts. The reason is a Pod whose
// token expires during a cut: it gets no new token, but is still the same Pod.
//
// Invariants:
//
//   - The hub takes a caller only for the user that the cloud named for its token. It lets the caller do only what the cloud
//     allowed this user. The cloud's next answer replaces the last.
//   - Neither memory nor disk holds a token, only its digest.
//   - Callers with the same question share one request to the cloud. At most maxAsking requests of a kind run at a time, each for
//     at most askFor.
//   - Each address may show mostInVain tokens a minute that the cloud does not know.
//
// The alternative was the API server's own delegating authenticator and authorizer. They add CEL and the API server's scheme to
// every hub, some 10 MB, and forget everything after some minutes even while the cloud cannot be asked.
//
// # What a hub says of itself
//
// HealthHandler serves the hub's operators and probes. Anybody may read /healthz (the process answers) and /readyz (the hub knows
// whether it reaches the cloud, so that requests get an answer or a clear refusal). Only root may read /status, /metrics (unless
// HealthConfig.OpenMetrics is set), and Go's profiles at /debug/pprof/, because they show what runs on the node, for whom, and
// how the pool is doing.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - identityFor: entered when the cloud says whose a token is; ends when identityFor is over, and the cloud is asked again.
//     (TestTheCloudSaysWho)
//   - accessFor: entered when the cloud allows something; ends when accessFor is over, and the cloud is asked again.
//     (TestTheCloudSaysWhat)
//   - refusedFor: entered when the cloud refuses a token or an action; ends when refusedFor is over. (TestTheCloudSaysWho)
//   - unknownFor: entered when the cloud gives no answer to a question; ends when unknownFor is over. (TestTheCloudSaysWho)
//   - memory.remember: entered when an answer is written to the disk; ends when the Tenure says recall.Over, when the cloud says
//     no, or when the disk needs the room for others. (TestHowLongAnIdentityHoldsInACut, TestTheDiskIsSpared)
//   - account.spent: entered when an address shows a token that the cloud does not know; ends when budgetTime is over. Until then
//     the address may show mostInVain of these tokens. (TestTokensThatAreMadeUp)
//   - bearer.tokens: entered when a caller shows a token; ends when the cloud refuses it, or when maxTokens others are newer; the
//     last one stays, and is tried again. (TestBearer)
//   - limit.now: entered when a request takes a place of its class; ends when the request ends. (TestLimits)
//   - shares.taken: entered when a request takes a place of its client's share; ends when the request ends.
//     (TestAProgramLeavesRoomForOthers)
//   - strangersWatch: entered when a caller that is not known to be allowed watches a pool's resource; ends when strangersWatch
//     is over, with the watch. (TestAStrangersWatchIsSoonOver)
//   - Moving: entered when the node has an address and the server listens there; ends when the node has another address or none.
//     If the server can't listen, it tries again when listenPause is over at the latest. (TestMoving)
//   - Server.drain: entered when a server is told to stop; ends when its requests have ended, or when drainTimeout and
//     abortTimeout are over. (TestShutdownIsBounded)
package front
