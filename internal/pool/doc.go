// Package pool is the pool's meeting place: a genuine kube-apiserver and a genuine etcd in one process, in memory.
//
//	clients ──TLS, client certificates──▶ refusals ▶ x509 ▶ Node+RBAC ▶ NodeRestriction+PoolLease ▶ REST
//	                                                                                                  │
//	                                                              │                                   │
//	                          mirror: the leader's watch streams ◀┘                                   │
//	                                                              └──▶ etcd, one member, in memory ◀──┘
//
// It starts empty, by contract: what a pool knows is pushed by its hubs, and a copy that survived a restart would be
// served as if it were current. So the data directory is emptied before the start and removed at the end, and nothing
// is ever synced to a disk.
//
// Invariants:
//   - etcd outlives kube-apiserver: it is started first and stopped last. A kube-apiserver whose etcd is gone lingers.
//   - Ready means all of it: etcd, the API, and the pool's own roles and Leases. A hub never meets a half-made one.
//   - No caller is believed about its place in the pool: whoever writes the election Lease writes its own name, and
//     whether a holder has lapsed is judged by this process's monotonic clock alone, never by a renewTime.
//   - A pool's resources come through the mirror, as the cloud's own bytes, from the leader alone, under its present
//     term. An acknowledged revision is in the mirror's replica and in etcd; what is refused has changed nothing; no
//     older revision replaces a newer one; what a full stream no longer has goes last.
//   - Memory is bounded: etcd's history, files and log by Housekeep, the mirror by its quota, a watch by its reader.
//   - Every refusal (401, 403) leaves one line, or is counted in the next one; no line holds a secret.
//   - Run returns only when what it started has stopped, or says that it gave up waiting after StopTimeout.
//
// The rooms, and what each may import of the others; nothing imports pool:
//
//	pool         the flags, the order of start and end, and which part is given to which: wiring
//	apiserver    a kube-apiserver that is given its parts
//	access       who may do what                         → exchange
//	mirror       the pool's resources, from the leader   → verbatim, exchange
//	nodeobjects  what each hub pushes of its node        → verbatim, audit, exchange
//	audit        a line for each refusal                 → exchange
//	verbatim     objects under kube-apiserver's keys     → exchange
//	exchange     the body of a push, and its answer
//	etcd         a one-member etcd in memory
//	openapi      the documents that kubectl explain reads
//
// One flat package was the alternative, and what this was: see docs/adr/0018-coordinator-rooms.md. Each room's own comment has
// its invariants. See docs/adr/0001-one-process.md for why all of it is one process.
package pool
