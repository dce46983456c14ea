// Package link decides whether one server at the other end of a link can be reached.
//
// Machine decides. It is a value that takes timed events, and returns the link's state and what to do next. Monitor does the
// I/O: it sends probes, and tells the Machine how probes and real traffic fared.
//
// Everything that arrives from the verified other end is a sign of life: any answer, and bytes on any connection. While there
// is such traffic, the link is not probed. If nothing has arrived for Timing.Interval, the Monitor probes over the open
// connection. If the answer is late, it also probes over a new connection, because one stuck TCP connection is not a dead link.
// The first probe keeps waiting: a late answer still counts, and measures how slow the line is.
//
// Most probes are knocks (Timing.Knocks): they ask for TCP's acknowledgement and cost half of a ping. A middlebox that
// terminates TCP may acknowledge, so a knock counts only as arrived bytes. After Timing.Quiet without an answer a ping follows,
// which needs an answer.
//
// Invariants:
//   - A link goes down for one of three reasons. Nothing has arrived for Machine.Patience since a probe. Or bytes arrived,
//     but no answer for Timing.Trust. Or two probes in a row were refused and nothing else arrived.
//   - Only probes bring a link up again; an unknown link is up with the first answer.
//   - Failing traffic never changes the state, because a request can fail for reasons of its own. It only brings the next
//     probe forward, which then asks the API and not just its connection.
//   - A link that went down soon after it came up needs more answered probes to come up.
//
// Machine.Patience follows the measured round trip and its variance. A sudden delay on a line is not measured yet, so it must
// fit into MinPatience. With Standard, a queue that fills at once and delays answers by 4 s fits. Then the hub notices the
// silence of a good line within 7.8 s, and that of a line with a round trip of 2 s within 15 s.
//
// A server that answers may still be useless: a balancer without servers behind it, or an API server that has lost etcd.
// Service recognizes that by the answers to core reads and to requests for Leases. Monitor then shows a link that is up as
// Failing. Failing only informs: requests go out as before, nothing is reset, and probes go on as for a link that is up.
//
// ADR 46 has the alternatives.
package link
