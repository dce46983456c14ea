// Package exchange is one exchange between a hub and the coordinator: the body of a push, which may arrive slowly, and the
// answer, which is JSON lines or a refusal.
//
// Invariants:
//   - A body that stays silent for its limit is cut, and so is a push of one batch that takes longer than PushTimeout. After a
//     request has ended, none of its deadlines affects the connection.
//   - A refusal has a code and says what to do. The caller and the audit log get the same reason.
//
// The package does not know what is pushed. So all packages that take pushes or refuse requests can use it. The alternative was
// kube-apiserver's time limit. At that limit kube-apiserver answers while the handler still reads, so the answer can't say that
// nothing was changed.
package exchange
