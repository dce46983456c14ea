// Package lead decides which hub leads its pool, and for how long.
//
// Machine is the decision, without I/O. From the state of this hub's two links and of its own campaign it derives the
// role, whether to campaign and whether to release. Elector is the I/O around it: an election on the Lease
// kube-system/yurthub in the coordinator, with client-go's elector, and the duty (ElectorConfig.Lead) that a leader has for
// its term. The duty asks edge.Term, its fence, before it acts.
//
// Invariants:
//   - At most one hub's term is valid at a time, whatever wall clocks say: a term is valid only for a while after its
//     last acknowledged renewal was sent, and others wait longer than that before they take over (timing.go has the
//     sum).
//   - A coordinator that came back empty does not know who leads: it lets nobody take the Lease for as long as a term can go
//     on. A hub that finds the Lease missing waits as long; only the last holder itself may create it at once.
//   - A hub proves that the cloud lets it do its duty before it campaigns. A leader whose duty ends with ErrUnfit leaves the
//     lead to another for half a minute; if there is no other, it goes on.
//   - Nobody ends another's term. Whatever else vacates the Lease is its expiry.
//   - A term ends in this order: its fence falls, the duty's context ends, the duty returns, the Lease is released. The
//     Lease is released even if the duty does not return in time: the fence has fallen, so the duty can do no harm.
//   - A hub campaigns only while both of its links are up. A leader whose cloud link is no longer up releases at once.
//   - Two processes with the same node name are two candidates; neither takes the other's term for its own.
//   - Run waits for every goroutine that it started, the elector's and the duty's among them.
//
// LineWatch has a leader leave the lead to a node with a much better link to the cloud. What the pool shares, and all forwarded
// heartbeats, cross the leader's line. Who came first leads, and with a line that is slow, lossy or paid for by the byte the
// whole pool pays. So each hub says on the coordinator's copy of its node's Lease what its own heartbeats take to the cloud
// (edge.AnnotationLine, measured in package heartbeat, which costs no byte more). The leader reads that from the watch that its
// report needs anyway (Reporter). If another line has been far better for a minute, it ends its term and leaves the Lease
// to that node by name (Yield). More invariants:
//   - A pool has at most one such hand-over in ten minutes (Elector.Rested). No two lines are each better than the other, and a
//     node hands over only to one whose line takes at most half of its own, so leadership does not go to and fro between equals.
//   - Only nodes that renew at the coordinator and whose link to the cloud is up are considered. A node whose leader's line is
//     unknown is left alone.
//
// The alternative was to let hubs with better lines campaign against a leader that lives: the coordinator refuses that, and
// whoever wants to lead would have a reason to lie. Here it is the leader that decides.
//
// The elector asks its lock ten times a second. The lock answers from a watch on the one Lease and writes a renewal once a
// second; a follower's lock answers only when there is something to decide. So a follower costs nothing, and a released Lease
// is taken within one period. The alternative was an election of our own on that watch: we would then own the subtleties of
// who holds what since when, which client-go has had right for years.
//
// # What a leader reports
//
// A Reporter knows which nodes of a pool reach its coordinators, and tells the cloud: a leader watches the Leases that all
// hubs keep in each coordinator where it leads, counts those whose renewals it sees come in, and writes their names into one
// Lease in the cloud, as the pool's forwarding user. That also tells the cloud who leads.
//
// A hub that leads at several coordinators writes one report, of what it hears at any of them, in the Lease of the lowest slot
// (edge.PoolName.ReportLease). So a standby costs the WAN nothing, and two hubs that lead each at another coordinator do not
// write over each other. What is heard in a slot above is taken as far as it is seen: the report does not wait for it.
//
// The report also says how each node's kubelet can be known, by its hub's word (identity.KubeletFinder), and how much traffic
// each hub claims to have carried over its link to the cloud. It says how the pool's hubs are together (edge.PoolHubs), which
// is as short for a large pool as for a small one: coordinator-controller makes metrics of it, and nobody has to scrape nodes.
// That is told with each fifth report, and sooner if more than counts has changed. A change of these alone is no reason to
// write.
//
// A leader writes the report when it has changed, and now and then to say that it still holds: every few minutes, as
// ReporterConfig.Every says. A leader that has just begun waits until it has seen every node renew, or for as long as a node's
// Lease lasts: what it finds says nothing about now.
//
// The reporter follows these Leases by a watch of its own. The forwarder, which follows the same ones, has another.
//
// The alternative was a mark in each heartbeat, which would travel over the WAN some hundred times as often as it
// changes.
//
// # How Leases are followed
//
// FollowLeases follows Leases of one API server with an explicit baseline: it tells what a list found apart from
// what it saw happen. Two decisions rest on that difference: a leader forwards only heartbeats that it saw happen, and
// a candidate counts a rival's term only from what it saw itself.
//
// Invariants: a sink hears Baseline first; every Changed after it is a change that came after that baseline in the
// server's own order, once; after a new Baseline nothing of the earlier history follows. A broken watch resumes at its
// revision, so that a reconnect neither repeats nor misses a change. If the server's history no longer holds that
// revision, a new Baseline comes. One goroutine, the caller's, does all of it.
//
// client-go's reflector was the alternative. But its store hides whether an object came from a list or from a watch,
// and it resumes at any revision. Our servers live in memory: one that came back empty counts its revisions from the
// start, and a watch that resumes at a revision "of the future" stays silent until then. So before each resume one
// small list asks how far the server's history reaches.
package lead
