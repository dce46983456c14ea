// Package lead decides which hub leads its pool, and for how long.
//
// Machine makes the decision, without I/O. From the state of this hub's two links and of its own campaign it derives the role,
// whether to campaign and whether to release the Lease. Elector does the I/O. It runs an election on the coordinator's Lease
// kube-system/yurthub with client-go's elector. While this hub leads, the Elector runs the leader's duty (ElectorConfig.Lead).
// The duty gets an edge.Term. Before each action, the duty asks the Term whether it is still valid.
//
// Invariants:
//   - At most one hub's term is valid at a time, whatever wall clocks say. A term stays valid only for a while after its last
//     acknowledged renewal was sent. Other hubs wait longer than that before they take over (timing.go has the sum).
//   - A coordinator that came back empty does not know who leads. So it lets nobody take the Lease for as long as an old term can
//     last. A hub that finds the Lease missing waits equally long before it asks, even if it held the Lease itself.
//   - Before a hub campaigns, it makes sure that the cloud lets it do a leader's duty. A leader whose duty ends with ErrUnfit
//     campaigns again after half a minute, or after 4 s if no hub leads by then.
//   - No hub ends another's term. A Lease that its holder does not release becomes free only by expiry.
//   - A term ends in this order: it becomes invalid (fence.fall), the duty's context ends, the duty returns, the Lease is
//     released. If the duty does not return in time, the Lease is released all the same. The duty can do no harm then, because
//     its term is invalid.
//   - A hub campaigns only while both of its links are up. A leader whose link to the cloud is no longer up releases at once.
//   - Two processes with the same node name are two candidates; neither mistakes the other's term for its own.
//   - Run waits for every goroutine that it started, the elector's and the duty's among them.
//
// LineWatch makes a leader hand over to a node with a much better line to the cloud, because the pool's shared resources and all
// forwarded heartbeats cross the leader's line. Each hub measures how long its heartbeats take to the cloud (package heartbeat).
// It reports that on the coordinator's copy of its node's Lease (edge.AnnotationLine). The leader reads these reports from the
// heartbeats that Reporter needs anyway. If another line was far better for a minute, the leader ends its term and leaves the
// Lease to that node by name (Yield). More invariants:
//   - A pool has at most one such hand-over in ten minutes, unless its coordinator came back empty (Elector.Rested). Of two
//     lines, at most one is better than the other. If both or neither are billed by volume, a request must take at most half as
//     long on the better one. So the lead does not swing between equals.
//   - Only nodes that renew at the coordinator and whose link to the cloud is up are candidates. A leader whose own line is
//     unknown does not hand over.
//
// The alternative was that hubs with better lines campaign against a living leader. The coordinator refuses that, and a hub that
// wants to lead would have a reason to lie about its line.
//
// client-go's elector asks its lock up to ten times a second. The lock answers from what the coordinator has sent about the
// election Lease, and writes a renewal once a second. A follower's lock answers only when there is something to decide, so a
// follower that waits sends no requests. A released Lease is taken within pollMax. The alternative was an election of our own, on
// the coordinator's stream. We would then own the subtle rules of who has held the Lease since when, which client-go has had
// right for years.
//
// # What a leader reports
//
// A Reporter tells the cloud which nodes of a pool reach its coordinators. A leader follows the Leases of all nodes at each
// coordinator where it leads. It writes the names of the nodes whose Leases it sees renewed into one Lease in the cloud, as the
// pool's forwarding user. That also tells the cloud which hub leads.
//
// A hub that leads at several coordinators writes one report for all of them, in the Lease of the lowest slot
// (edge.PoolName.ReportLease). So a standby costs the WAN nothing, and two hubs that lead at different coordinators do not
// overwrite each other's report. For the higher slots the report has what the hub has seen so far; it does not wait for more.
//
// The report also says how coordinators can verify each node's kubelet (identity.KubeletFinder), and what traffic each hub has
// carried over its link to the cloud. It sums up the state of the pool's hubs (edge.PoolHubs), in a form that is as short for a
// large pool as for a small one. coordinator-controller turns the sum into metrics, so that nobody has to scrape nodes. Every
// fifth report carries the sum. An earlier report does if the sum differs in more than traffic, certificates and lines. A change
// of only the sum or the traffic triggers no report.
//
// A leader writes the report when it has changed, and every few minutes to confirm it (ReporterConfig.Every). The Leases that a
// new leader finds say nothing about the present. So the leader waits before its first report until it has seen each node renew,
// or until the node's Lease has run out.
//
// The alternative was a mark in each heartbeat. Heartbeats cross the WAN some hundred times as often as the report changes.
//
// # How the pool's state is followed
//
// A State follows one coordinator, by one stream that tells the pool's state (edge.PathState). It holds two Leases: the
// election's, and the one by which the leader declares what is current. It passes on heartbeats, and what the coordinator tells
// of nodes and Pods, to those who follow them. It distinguishes what it found when a stream began from what it saw happen. Two
// decisions need that: a leader forwards only heartbeats that it saw happen, and a declaration counts only once its renewal was
// seen.
//
// Invariants: a sink gets Baseline first. Each Changed after it is a later change, and comes once. A stream that broke resumes
// where it ended, so a reconnect neither repeats nor misses a change. If another process of the coordinator answers, a new
// Baseline comes. While the coordinator can't be reached, a State forgets the two Leases and keeps the heartbeats. Run calls the
// sinks in its caller's goroutine; only a first Baseline can come from Heartbeats.
//
// The alternative was separate watches: one of the election Lease, one of the declaration, and two of all heartbeats
// (docs/adr/0081-one-stream.md).
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Leader: entered when this hub has won the Lease; ends when it is deposed, its duty fails, a link goes down, or it can't
//     renew for renewDeadline. (TestTakeover)
//   - ending: entered when a campaign is told to stop, or has lost the Lease; ends when all of its goroutines have returned.
//     (TestTranscripts)
//   - Standing.Leader: entered when the Lease names another holder; ends when it names somebody else or nobody, or when the
//     coordinator is lost. (TestCoordinatorBackEmpty)
//   - fence: entered when a renewal is acknowledged; ends when the term ends, or when leaseDuration less fenceMargin is
//     over. (TestFence)
//   - errVacant: entered when the Lease is known to be missing; ends when there is one, or when leaseDuration is over: then this
//     hub may make it. (TestMissingLease)
//   - lock.suspect: entered when a write of the Lease is sent; ends when it is acknowledged, or when the Lease is read.
//     (TestReleasesWhatItMayHold)
//   - lock.refused: entered when the coordinator refuses to let this hub lead; ends when refusedPause is over.
//     (TestRefusedByTheCoordinator)
//   - lock.told: entered when another hub holds the Lease; ends when the Lease changes, or when its time is nearly up.
//     (TestAnswersWhenThereIsNews)
//   - ErrUnfit: entered when the duty says that this hub can't do it; ends when leaseDuration is over, or unfitPause if another
//     hub leads by then. (TestAnUnfitLeaderLeavesItToOthers)
//   - backoffMax: entered when a proof or a duty fails; ends when its pause is over, after backoffMax at the latest; a duty of
//     steadyTerm begins anew with backoffMin. (TestDutyThatFails, TestProofComesFirst)
//   - Yield.To: entered when a leader leaves the lead to a node; ends when that node takes it, or when yieldWait is over.
//     (TestYield, TestYieldToNobody)
//   - yields.last: entered when the pool hands over for a better line; ends when restAfterYield is over. (TestYield)
//   - comparison.since: entered when another node's line is better; ends when a comparison finds that it no longer is, or with
//     the term when linePatience is over. (TestLook)
//   - Sighting.Known: entered when the coordinator has told of a Lease; ends when the coordinator is lost. (TestSightings)
//   - State.heartbeats: entered when the coordinator tells of heartbeats; ends when it tells of none, as it does to a hub that
//     does not lead. (TestBeatsOfChanges)
//   - Heartbeat.Changed: entered when a node is seen to renew; ends when the Lease's own time is over, or defaultLease if it
//     names none. (TestBeats)
//   - Reporter.beats: entered when this hub begins to lead at a slot; ends when the term does. (TestSlots)
//   - speaker.next: entered when the cloud does not take a report; ends when its pause is over, after one and a half times
//     sayEvery at the latest. (TestRetries)
//   - speaker.told: entered when the cloud takes a report; ends when the report differs, or when ReporterConfig.Every is over.
//     (TestHowOftenAReportIsRepeated)
package lead
