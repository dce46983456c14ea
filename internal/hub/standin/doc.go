// Package standin takes what kubelet and other programs of the node write while the cloud does not answer: statuses, which it
// shows on top of what the cloud has; and Events, which it sends to the cloud later.
//
// It takes nothing else, and kubelet still reads what the cloud has said, so kubelet repeats a status until the cloud has it.
// Nobody repeats Events. They wait here, also on the disk if there is one, and Taker.Run's goroutine sends them when the cloud
// is back.
//
// Each request is answered in its own goroutine. Statuses and Events have one lock each, which is never held during I/O.
// Package push, which brings the node's objects to the coordinator, reads both through Taker.AddTo.
//
// Invariants:
//   - No revision of the coordinator reaches the node's programs, or through them the cloud.
//   - A status is shown on top of one revision of the cloud's object. It goes when the cloud has a newer one, or when the cut
//     has been over for a while.
//   - An Event that was taken reaches the cloud once, in its last form, unless it is too old by then, one of too many, or
//     refused.
package standin
