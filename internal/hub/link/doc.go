// Package link decides whether one server at the other end of a link can be reached.
//
// Machine is the decision: a value that takes events with their times and says what the link's state is and when the
// next probe is due. Monitor is the I/O around it: it runs the probes and takes in what real traffic sees.
//
// Evidence of life is an answer to a probe or a request. It proves the link only as of the moment the question was
// sent: it outweighs failed probes that started before that moment, and none that started later. A probe without an
// answer is repeated at once on a connection of its own, because one stuck TCP connection is not a dead link; two such
// failures in a row are. Failing traffic never changes the state, because a request can fail for reasons of its own. It
// only brings the next probe forward.
//
// Invariants: only a failed probe takes a link down, and only probes bring it up again; an unknown link is up with the
// first evidence of life. With Standard timing, a link that falls silent is down 3 s after the first unanswered probe
// was sent and 5 s after the silence began, and one that heals is up again after about 3 s at most. A link that went
// down soon after it came up must prove itself longer, within that bound.
//
// A server that answers may still be useless: a balancer without servers behind it, or an API server that has lost etcd.
// Service decides that from the answers to core reads and to requests for Leases; Monitor then shows a link that is up as
// Failing. Failing only informs: requests go out as before, nothing is reset, and probes go on as for a link that is up. A
// server that answers the probe itself with "not ready" counts as down: another one may be ready.
//
// We rejected the alternative, a failure rate over a window: it is quick only with traffic, and an idle node has none.
package link
