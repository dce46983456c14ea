// Package standin takes what kubelet and other programs of the node write while the cloud does not answer: statuses, which are
// shown on top of what the cloud has; Events, of which the cloud is told later; and reviews, which the coordinator answers.
//
// Nothing else is taken, and kubelet goes on to read what the cloud has said: so it repeats a status until the cloud has heard
// it. Events are repeated by nobody. They wait here, on the disk too if there is one, and one goroutine, Taker.Run's, tells the
// cloud when it is back.
//
// Requests are answered in their own goroutines. What is said of objects and the Events have one lock each, which is held for
// no I/O; whoever pushes the node's objects to the coordinator reads them through Taker.AddTo.
//
// Invariants:
//   - No revision of the coordinator comes to the node's programs, nor by them to the cloud.
//   - What is shown of an object is on top of one revision of the cloud's, and goes when the cloud says something newer, or
//     when the cut has been over for a while.
//   - An Event whose writer was told that it is kept reaches the cloud once, as it was written last, unless it is too old by
//     then, one of too many, or refused.
package standin
