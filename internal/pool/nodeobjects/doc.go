// Package nodeobjects holds what each hub pushes about its own node: the Node, its Pods, what they use, its Events. Operators
// read them through the API while the cloud is away.
//
// Invariants:
//   - A node can push only its own objects: the claims hold the rules, and say whose each object is.
//   - An object stays as long as a node claims it. A node that is silent, or leaves the pool, loses its claims.
//   - A push is accepted only if its If-Match names the present state. So a hub that knows another state asks first.
//   - etcd and claims change together. What may not have been written is pushed again. What somebody else has written through the
//     API is left alone.
//
// The alternative was that the leader pushes all nodes' objects. One node would then hold all Pods and, with --own-secrets, all
// Secrets. See docs/adr/0014-own-objects.md.
package nodeobjects
