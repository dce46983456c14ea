// Package link decides whether one server at the other end of a link can be reached.
//
// Machine is the decision: a value that takes events with their times and says what the link's state is, and what to do next.
// Monitor is the I/O around it: it sends the probes and takes in what real traffic sees.
//
// Whatever arrives from the verified other end is evidence of life: an answer, whatever it says, and bytes of any connection.
// A link that carries either is not probed. One from which nothing has arrived for Timing.Interval is asked over the connection
// that is there; if the answer is late, over one of its own as well, because one stuck TCP connection is not a dead link. The
// first question waits for as long as its answer may take: a late answer is an answer, and says how slow the line is.
//
// Most questions are knocks (Timing.Knocks): they ask for TCP's acknowledgement and cost half of a ping. Whoever ends TCP on the
// way may acknowledge, so that counts as arrived bytes do: after Timing.Quiet without an answer a ping follows, which needs one.
//
// Invariants: a link goes down only if nothing has arrived since a question, for as long as Machine.Patience says; or if no
// answer came for Timing.Trust, though bytes did; or if two probes in a row were refused and nothing else arrived. Only probes
// bring it up again; an unknown link is up with the first answer. Failing traffic never changes the state, because a request can
// fail for reasons of its own. It only brings the next probe forward, which then asks the API and not just its connection. A link
// that went down soon after it came up must prove itself longer.
//
// Patience follows the measured round trip and its variance. So what a line does suddenly must fit into the least patience: with
// Standard a queue of 4 s that fills at once. With it a good line's silence is noticed within 7.8 s, a line's of 2 s within 15 s.
//
// A server that answers may still be useless: a balancer without servers behind it, or an API server that has lost etcd.
// Service decides that from the answers to core reads and to requests for Leases; Monitor then shows a link that is up as
// Failing. Failing only informs: requests go out as before, nothing is reset, and probes go on as for a link that is up.
//
// ADR 46 has the alternatives.
package link
