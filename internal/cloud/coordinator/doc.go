// Package coordinator manages the life of the pools' coordinators: from a YurtCoordinator to a Pod with certificates that the
// pool's hubs trust, and back to nothing.
//
//	YurtCoordinator ─┐                          ┌─▶ YurtAppSets, Service         (one for each slot, for all pools: the fleet)
//	NodePool, Nodes ─┼─▶ Judge ─▶ run ─▶ ensure ┼─▶ authority ─▶ serving certificate, kubeconfig   (Secrets of the pool)
//	Pod, its node  ──┘     └─▶ refuse, release  ├─▶ where coordinators are       (ConfigMap, and RBAC for the nodes to read it)
//	                                            └─▶ who forwards heartbeats      (RBAC)
//
// Invariants:
//   - Every decision follows from the objects at the API server; memory only saves work. The program may be killed anywhere,
//     and the next process reaches the same state.
//   - Nothing is made for a YurtCoordinator before it has its finalizer. The YurtCoordinator owns all objects of its pool.
//   - In a pool with several YurtCoordinators the oldest counts, until it and all that was made for it are gone.
//   - A pool that has a coordinator keeps it until its YurtCoordinator or its NodePool goes. Labels of the NodePool say how
//     many coordinators the pool has, and which settings they have. The YurtAppSets select pools by these labels, and their
//     rollout brings changes to the pools (package appset).
//   - A pool has one coordinator, or one in each of up to three slots: slot 0, and standbys (slots.go). A standby is added once
//     the coordinators of all lower slots serve. No node runs two coordinators.
//   - Secrets are read by name and never listed. A pool's authority signs for that pool only. Every key is in a Secret and
//     nowhere else.
//   - Expensive steps run when their facts change, when a certificate is due, and every ten to fifteen minutes. A node whose
//     link goes or comes back costs one write of a status. Nodes of a pool whose links change together share that write. After
//     a start the program reads the objects of each pool, and writes only what is not as it should be.
//
// The Pod waits for its Secret, because the certificate is for the address of the Pod's node, and the scheduler chooses the node.
// The alternative was to choose the node here, and to make the Deployment after the certificate.
//
// Rights: testdata/rbac.yaml. The tests run with them.
package coordinator
