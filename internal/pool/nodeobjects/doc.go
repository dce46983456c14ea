// Package nodeobjects holds what each hub pushes of its own node: the Node, its Pods, what they use, its Events. Operators
// read them through the API while the cloud is away.
//
// Invariants:
//   - A node is believed about its own objects and about nothing else: its claims have the rules, and say whose each object is.
//   - An object stays as long as a node has a claim to it; a node that is silent, or leaves the pool, loses its claims.
//   - A push is taken only on top of the state that its If-Match names. So a hub that knows something else asks first.
//   - etcd and claims change together. What may not have been written is pushed again; what somebody else has written
//     through the API is left alone.
//
// Having the leader push all nodes' objects was the alternative: one node would then hold the Pods, and with --own-secrets
// the Secrets, of all. See docs/adr/0014-own-objects.md.
package nodeobjects
