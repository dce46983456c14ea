// Package coordinator is the life of the pools' coordinators: from a YurtCoordinator to a Pod with certificates that its
// hubs know, and away again.
//
//	YurtCoordinator ─┐                          ┌─▶ YurtAppSet, Service          (one each, for all pools: the fleet)
//	NodePool, Nodes ─┼─▶ Judge ─▶ run ─▶ ensure ┼─▶ authority ─▶ serving certificate, kubeconfig   (Secrets of the pool)
//	Pod, its node  ──┘     └─▶ refuse, release  ├─▶ where it is                  (ConfigMap, and that the nodes may read it)
//	                                            └─▶ who forwards heartbeats      (RBAC)
//
// Invariants:
//   - Everything is decided from what there is; nothing is remembered but to save work. It may be killed anywhere, and
//     whoever takes over comes to the same end.
//   - Nothing is made of a YurtCoordinator before it has its finalizer, and everything of a pool is owned by it.
//   - A pool has one YurtCoordinator that counts, the oldest, until that is gone with all that was made for it.
//   - A pool that has a coordinator keeps it until its YurtCoordinator or its NodePool goes: that it has one is read from the
//     YurtAppSet.
//   - Secrets are read by name and never listed. A pool's authority signs for that pool only; its key, and every other,
//     is in a Secret and nowhere else.
//   - What costs requests is done when its facts change, when a certificate is due, and every ten to fifteen minutes: a
//     node whose link goes or comes back costs one write of a status, which its neighbours' may share. A start reads what
//     there is of each pool, and writes nothing.
//
// The alternative to a Pod that waits for its Secret was a Deployment that is made when the certificate is: but the
// certificate is for the address of the node, which the scheduler chooses.
//
// Rights: testdata/rbac.yaml, which the tests run with.
package coordinator
