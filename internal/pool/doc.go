// Package pool is the pool's meeting place: a genuine kube-apiserver and a genuine etcd in one process, in memory.
//
//	a pool's hubs, its operators
//	      │ client certificates
//	      ▼
//	chain (Coordinator.chain, in the order in which a request passes)
//	      ├─▶ Kubernetes' API ─────────────┐
//	      ├─▶ shareserver: what hubs bring ──┴─▶ etcd, one member, in memory
//	      └─▶ state: what all hubs hear ◀── Leases, shareserver
//
// A coordinator starts empty, and hubs push what the pool knows. Data that survived a restart would be served as if it were
// current. So the data directory is emptied before the start and removed at the end, and nothing is ever synced to a disk.
//
// Invariants:
//   - etcd outlives kube-apiserver: it starts first and stops last. A kube-apiserver that loses its etcd hangs.
//   - Ready means that etcd, the API and the pool's own Leases all work. A hub never meets a half-made coordinator.
//   - No caller is believed about who leads. A node writes only its own name into the election Lease. Only this process's
//     monotonic clock says whether a holder has lapsed, never a renewTime.
//   - A pool's resources come through the mirror, as the cloud's own bytes: from the leader under its present term or, while
//     nobody leads, from the filler under its turn. An acknowledged revision is in the mirror's replica and, if kube-apiserver
//     serves the resource, in etcd. A refused batch has changed nothing. No older revision replaces a newer one of the same
//     history, unless the leader insists. Objects that a full stream lacks are deleted last.
//   - Memory is bounded. Housekeep bounds etcd's history, files and log, and a quota bounds the mirror. A watch whose reader is
//     too slow ends.
//   - Every stream that is allowed leaves a line in the audit log when it begins. Every refusal (401, 403) leaves one, or the
//     next line counts it. No line has anything of a body, or of what a stream carries.
//   - Run returns only when all that it started has stopped, or says that it gave up waiting after StopTimeout.
//
// Its rooms are the packages below this one. An arrow names what a room may import from the others; no room imports
// pool:
//
//	pool         the flags, the order of start and end, and the connections between the rooms: Coordinator knows neither
//	             kube-apiserver nor etcd, and wiring gives it both
//	apiserver    a kube-apiserver that is given its parts
//	access       who may do what                         → exchange
//	shareserver  what hubs push: the pool's resources, and their own nodes' objects  → exchange
//	state        the pool's state, one stream for each hub → exchange
//	limits       how much a caller may have under way    → exchange
//	page         what people look at with a browser
//	exchange     a body that may arrive slowly, and an answer
//	succession   the end of a coordinator that has a younger one in its slot
//	etcd         a one-member etcd in memory
//
// The alternative was one flat package: see docs/adr/0018-coordinator-rooms.md. Each room's own comment has its invariants.
// docs/adr/0001-one-process.md says why all of it is one process.
package pool
