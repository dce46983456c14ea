// Package coordinator manages the life of the pools' coordinators: from a YurtCoordinator to a Pod with certificates
// that its hubs trust, and back to nothing.
//
//	YurtCoordinator ─┐                          ┌─▶ YurtAppSets, Service         (one for each slot, for all pools: the fleet)
//	NodePool, Nodes ─┼─▶ Judge ─▶ run ─▶ ensure ┼─▶ authority ─▶ serving certificate, kubeconfig   (Secrets of the pool)
//	Pod, its node  ──┘     └─▶ refuse, release  ├─▶ where it is                  (ConfigMap, and that the nodes may read it)
//	                                            └─▶ who forwards heartbeats      (RBAC)
//
// Invariants:
//   - Every decision follows from what exists; memory only saves work. The program may be killed anywhere, and the next
//     one comes to the same end.
//   - Nothing is made for a YurtCoordinator before it has its finalizer, and it owns everything of its pool.
//   - In a pool with several YurtCoordinators the oldest counts, until it and all that was made for it are gone.
//   - A pool that has a coordinator keeps it until its YurtCoordinator or its NodePool goes. The YurtAppSet says whether it
//     has one.
//   - A pool has one coordinator, or one in each of up to three slots, which do not depend on each other: slot 0, and standbys
//     (slots.go). No node has two.
//   - Secrets are read by name and never listed. A pool's authority signs for that pool only. Every key is in a Secret
//     and nowhere else.
//   - Expensive steps run when their facts change, when a certificate is due, and every ten to fifteen minutes. A node
//     whose link goes or comes back costs one write of a status, which it may share with its neighbours. A start reads
//     the objects of each pool, and writes nothing.
//
// The Pod waits for its Secret. The alternative was to make a Deployment only after the certificate; but the
// certificate is for the node's address, and the scheduler chooses the node.
//
// Rights: testdata/rbac.yaml. The tests run with them.
package coordinator
