// Package link decides whether one server at the other end of a link can be reached.
//
// Machine is the decision: a value that takes events with their times and says what the link's state is and when the
// next probe is due. Monitor is the I/O around it: it runs the probes and takes in what real traffic sees.
//
// Evidence of life is an answer to something sent: a probe or a request. It proves the link only as of the moment the
// question was sent, so it outweighs the failed probes that started before that moment and none that started later.
// A probe that gets no answer is repeated at once on a connection of its own, because one stuck TCP connection is not
// a dead link; two such failures in a row are. Traffic that fails never changes the state, it only brings the next
// probe forward: a request can fail for reasons of its own.
//
// Invariants: a link goes down only by a failed probe, and from down to up only by probes; the first evidence of life
// of an unknown link is enough for up. With Standard timing, a link that falls silent is down 3 s after the first
// unanswered probe was sent and 5 s after the silence began, and one that heals is up again after about 3 s at most.
// A link that went down soon after it came up must prove itself longer, within that bound.
//
// A server that answers may still be of no use: a balancer without servers behind it, an API server that has lost etcd.
// Service decides that from what core reads and Leases are answered, and Monitor shows a link that is up as Failing then.
// Failing only informs: requests go out as before, nothing is reset, and probes go on as for a link that is up. A server
// that says by the probe itself that it is not ready is down, as before: there may be another one that is ready.
//
// The alternative, a failure rate over a window, was rejected: it needs traffic to be quick, and an idle node has none.
package link
