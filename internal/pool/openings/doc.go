// Package openings keeps who opened what in the pool's Pods until the cloud knows: exec, attach and port-forward, those that were
// refused, and the ends of those that last. The pool's leader asks for it, tells the cloud, and says what it has told.
//
// Invariants:
//   - Each attempt counts in exactly one opening, and an opening stays until the leader says that the cloud has it.
//   - An opening that was handed out does not change any more: whoever tells it again says the same.
//   - Memory is bounded, whatever a caller does. Who makes too many different attempts is told with his name and their number;
//     refusals take no place of what was opened.
//   - Only the leader reads it. No opening has an argument of a command, a header or anything that went through a stream.
//
// What is kept ends with the process. So the first opening of each coordinator says that it began. The alternative was a queue
// that drops the oldest: then whoever has something to hide has only to knock often.
package openings
