// Package exchange is one exchange between a hub and the coordinator: the body of a push, which is read with patience, and
// the answer, JSON in lines or a refusal.
//
// Invariants:
//   - A body that brings nothing for its limit is cut, and so is a push of everything that takes longer than PushTimeout.
//     Once a request is over, no deadline of it touches the connection, which serves on.
//   - A refusal has a code and says what to do. Its text is the answer's, and the audit log learns the same reason.
//
// It knows nothing of what is pushed, so that the mirror, the nodes' objects and whoever refuses a request can all use it.
// Leaving the time limits to kube-apiserver was the alternative: it answers for a handler that still reads, and that answer
// can't say that nothing was changed.
package exchange
