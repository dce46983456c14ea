// Package link decides whether one server at the other end of a link can be reached.
//
// Machine decides. It is a value that takes timed events, and returns the link's state and what to do next. Monitor does the I/O:
// it sends probes, and tells the Machine how probes and real traffic fared.
//
// Everything that arrives from the verified other end is a sign of life: any answer, and bytes on any connection. The Monitor
// probes over the open connection when nothing has arrived for Timing.Interval, or no answer for Timing.Quiet. If the answer to a
// probe is late, the Monitor also probes over a new connection, because one stuck TCP connection is not a dead link. The first
// probe keeps waiting, because a late answer still counts, and measures how slow the line is.
//
// With Timing.Knocks, most probes are knocks, which ask only for TCP's acknowledgement and cost half of a ping. A middlebox that
// terminates TCP may acknowledge, so a knock counts only as arrived bytes. After Timing.Quiet without an answer a ping follows,
// which needs an answer.
//
// Invariants:
//   - A link goes down for one of three reasons. Nothing has arrived for Machine.Patience since a probe. Or bytes arrived, but no
//     answer for Timing.Trust. Or Timing.DownAfter probes in a row were refused and nothing else arrived.
//   - Only probes bring a link up again; an unknown link is up with the first answer.
//   - Failing traffic never changes the state, because a request can fail for reasons of its own. Failing traffic only brings the
//     next probe forward, and makes it ask the API, not just the connection.
//   - A link that went down soon after it came up needs more answered probes to come up again.
//
// Machine.Patience follows the measured round trip and its variance. A sudden delay on a line is not measured yet, so it must fit
// into Timing.MinPatience. With Standard, a queue that fills suddenly and delays answers by 4 s fits. With Standard, the hub
// notices the silence of a good line within 7.8 s, and the silence of a line with a round trip of 2 s within 15 s.
//
// A server that answers may still be useless: a balancer without servers behind it, or an API server that has lost etcd. Service
// recognizes that by the answers to core reads and to requests for Leases. An API server without etcd answers late. So if a
// request for a Lease hangs, the Monitor makes a check, which asks for an answer in time. While the Service is failing, Monitor
// shows a link that is up as Failing. This changes nothing for the link: requests go out as before, nothing is reset, and probes
// go on as for a link that is up.
//
// ADR 46 has the alternatives.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Unknown: entered when the Monitor is made; ends when the other end has answered, or its silence is judged. (TestMachine)
//   - Up: entered when the other end answers, UpAfter times in a row after an outage; ends when nothing arrives for
//     Machine.Patience, no answer for Timing.Trust, or probes are refused. (TestSilentCutAndHealing, TestBytesAreEvidence)
//   - Down: entered when the other end is silent or refuses; ends when UpAfter probes in a row are answered.
//     (TestSilentCutAndHealing)
//   - Failing: entered when failAfter core reads or requests for Leases in a row fail; ends when serveAfter in a row succeed, or
//     when the link goes down. (TestFailingEndsByItself)
//   - Machine.asked: entered when a probe is sent; ends when something answers, or when the link is called down, after
//     Timing.Trust at the latest. (TestDoubtful, TestMachine)
//   - Machine.doubted: entered when a request fails; ends when the API answers, or when the link goes down.
//     (TestDoubtEndsWithAnAnswer)
//   - Machine.need: entered when the link goes down within FlapWindow of coming up; ends when it goes down after it was up for
//     longer. (TestFlappingRaisesTheBar)
//   - Machine.timeout: entered when a probe of a link that is down gets no answer; ends when the next outage begins, which sets
//     the timeout by the round trip. (TestAnOutageBeginsWithAShortTimeout)
//   - Service.failures: entered when one core read fails; ends when the check that follows at once is over, answered or not.
//     (TestService)
//   - Service.need: entered when the service fails again within FlapWindow; ends when it fails after it has served for longer.
//     (TestFailingAgainRaisesTheBar)
//   - Service.due: entered when one core read fails or a request for a Lease hangs; ends when the check is over, answered or not,
//     or when the link goes down. (TestService)
//   - Service.checking: entered when a check is sent; ends when it has ended, by checkTimeout, or when the link goes down.
//     (TestService)
//   - Monitor.sick: entered when one collection cannot be read; ends when sickFor is over. (TestOneSickCollectionCountsForAWhile)
//   - Monitor.lastErr: entered when a probe fails, as Monitor.Last shows; ends when the link is up. (TestSilentCutAndHealing)
package link
