// Package cache keeps a replica of each selection, and restores, feeds, saves and serves the replica. A selection is what a list
// or watch asks for: a resource, a namespace, selectors. A replica holds the selected objects in memory. All requests of one
// client for the same selection share a replica.
//
// The hub follows a selection for itself (the pool's resources, and what service topology needs), for the node's programs, or
// for a caller. A caller is a client with its own token. The hub's own selections are fixed: Config.Always and Change set them.
// A program's selection begins with the program's first list or watch, and ends some minutes after the last one.
//
// Each replica has one feed and one saver. Both have ended before the next replica of the same selection is restored. Set.Run
// owns all goroutines.
//
// Invariants:
//
//   - The hub answers only what the cloud has said. It answers 503 for what it never knew, and never claims that such an object
//     does not exist.
//   - A request for a pool resource is answered by the replica, or not at all: answers never come partly from the replica and
//     partly from the cloud.
//   - When a resource is no longer one of the pool's, its clients' watches end. Their next requests carry the cloud's revisions
//     and go to the cloud.
//   - A program whose selection the cloud refuses gets the cloud's own answer. The exception is a selection that kubelet sees
//     through a view, because the cloud's answer would lack the view.
//   - Apart from the pool's resources, only clients that act with the node's identity get what was read with that identity. A
//     caller has selections of its own, read with its own token.
//
// # Where a replica is fed from
//
// A Feed fills one sink, which is a hub's replica of a resource. It reads from one source at a time: the cloud, the pool's
// coordinator, or none.
//
// Machine makes all decisions, and has no I/O, clock or random numbers of its own: Step takes an Event and returns a Decision.
// Machine remembers how the sources behaved lately (past) and which lists it doubts. Choose returns the best choice in a
// Situation. Feed does the I/O: one goroutine observes the surroundings, steps the Machine and carries out its Decision; a second
// one reads the source. Coverage tells which resources the leader keeps current in the coordinator.
//
// Invariants:
//   - One attempt at a time feeds the sink; the next begins when the last has ended. An attempt either lists or resumes. After
//     each attempt the Machine decides anew.
//   - After a change of source the Feed resumes at the sink's position. It lists only if the sink is empty, if the source can't
//     resume from that position, or if a client waits for the present state (Refresh).
//   - Before the Feed lists the cloud, it asks the coordinator's mirror if that is up, unless a client waits for the present
//     state. However old the mirror's content is, it is complete as of its revision, and the Feed resumes at the cloud from
//     there.
//   - The Feed applies a snapshot older than the sink's position only if the cloud was restored from a backup, because then the
//     older state is the truth. Before the Feed believes the cloud's own list of an older state, it doubts that list (see below).
//   - The Feed resumes at the cloud only once the cloud's history (see below) is known to be the sink's. If the histories differ,
//     the Feed lists everything anew.
//   - The Feed doubts a list that contradicts the sink's content (package doubt). It doubts for longer if a source has shown that
//     content, and for a shorter time if the content comes only from the disk. In the second case clients wait for the list, at
//     most 10 s longer than the lists take.
//   - The capacity of FeedConfig.Lists bounds how many lists over the WAN run at a time. The Feed does not break off a list over
//     the WAN when a mirror that refused can be used again.
//   - A list of a whole resource over the WAN comes in pages (FeedConfig.Pages), all of one revision. If the list breaks off, the
//     Feed keeps the pages and continues after them. If the server has forgotten the revision, the line was too slow for pages,
//     and the Feed asks once for everything in one answer.
//   - Each field of a FeedStatus ends when its reason does: see the list of states.
//   - A Feed never waits for a coordinator that does not exist. While the leader's own list makes progress, a Feed waits for it
//     (fillWait). No other Choice delays an attempt for longer than a minute, or half a minute if the sink is empty.
//
// The alternative was to keep a stream of the second source open as well. That doubles the traffic over the WAN, while a resume
// costs only a round trip.
//
// # Whether the cloud is still the same
//
// A HistoryKeeper finds out whether the hub's revisions still belong to the cloud's history.
//
// A cloud restored from a backup continues from an earlier revision. A watch that resumes at the hub's revision then gets
// nothing until the restored cloud reaches that revision, and misses all events before. Revisions of two histories say nothing
// about each other, however they compare. So each history has a number, kept with every revision, and the first component that
// sees a change of history raises the number.
//
// The proof is a witness: an object whose revision the hub has seen. An object keeps the revision of its last change. So if the
// witness is unchanged, the cloud's past reaches at least as far as the hub's. If the witness has changed, the hub asks the cloud
// for its state as of the revision at which the hub saw it. The same object has the same revision in two histories only by
// accident.
//
// An API server may keep a resource in a store of its own, and a hub cannot see for which resources that is so. So each resource,
// as each client reads it, has a witness of its own (ResourceHistory), and the hub compares revisions only within a resource. If
// reads of a resource fail, only the feeds of that resource stop. An empty collection is a witness, too: an object that appears
// later must be newer than the revision at which the collection was empty.
//
// The hub also sees a change of history when the revision of its node's Lease falls from one heartbeat to the next (Went). That
// costs nothing. The Lease is newer than any witness, but it can't be a witness, because the hub can't ask the cloud for a Lease
// as of a past revision.
//
//	link lost, a stream broke, content    ┌─ as seen: same history
//	from elsewhere is to be resumed ──▶ list the witness ─┼─ earlier, or the cloud's revision below ours: changed
//	                                      └─ later or gone ──▶ as of then ─┬─ as seen: same
//	                                                                       ├─ other: changed
//	                                                                       └─ forgotten: unknown
//
// Invariants:
//   - The hub resumes nothing at the cloud while the HistoryState is not Sure. Open streams continue.
//   - The number never falls, and all revisions with one number belong to one history.
//   - A proof costs one request for an object's metadata after each loss and for each resource, sometimes two, and nothing
//     otherwise.
//   - Unknown is not Changed: what the hub and its pool hold may be right. But a resume of that content could miss events. So the
//     hub lists such content once before it resumes it at the cloud (Floor).
//
// The hub does not notice a restore from a backup that was made after the newest witness last changed and after the node's last
// heartbeat. Until such a backup, everything that this hub follows was the same in both histories.
//
// The alternative was to compare the UID of the namespace kube-system. That shows that a cluster was rebuilt, as witnesses also
// do, but not that it was restored. Besides, nodes may not read the namespace.
//
// # The disk
//
// A Saver writes a replica to the disk, and reads it back after a restart.
//
// The disk holds a replica's content with the content's revision. So a restarted hub has its content back, and resumes from that
// revision wherever it can, without a list over the WAN.
//
// Invariant: the disk's content is what the replica has, or had, at the disk's revision. The Saver adds changes only to content
// that the replica began with, or that the Saver itself wrote from the replica after it had opened the watch. Anything else could
// be wrong: an emptied replica may be filled from a cloud whose history was set back, and reach the disk's revision with other
// content.
//
// Disk is the hub's store across restarts: a directory, or memory in a hub without one. Disk decides when to write everything at
// once, by which clock unread content ages, and which key encrypts secret content.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - FeedStatus.Live: entered when a watch opens; ends when it ends, or when another source is chosen. (TestStories)
//   - FeedStatus.Fresh: entered when a list is applied, or when a resumed watch has caught up; ends when no stream is open and an
//     API server refuses the next one, or the history's question. (TestFreshEndsWithTheStream, TestFreshEndsWithARefusedQuestion)
//   - FeedStatus.Failing: entered when the cloud gives no answer to the feed, or to the history's question; ends when it answers
//     either, or when the link is down. (TestFailingIsWhenTheCloudHasNoAnswer, TestFailingEndsWithTheHistorysAnswer)
//   - FeedStatus.Refused: entered when an attempt fails; ends when a stream opens, or when the next attempt ends otherwise.
//     (TestDeniedIsTriedSlowlyAndSaid)
//   - FeedStatus.Denied: entered when an attempt is denied; ends when a stream opens, or when the next attempt ends otherwise.
//     (TestDeniedIsTriedSlowlyAndSaid)
//   - FeedStatus.Stranger: entered when an attempt, or the history's question before it, gets 401; ends when a stream opens, or
//     when the next one ends otherwise. (TestWhoIsNotKnownIsNotDenied, TestAStrangersQuestion)
//   - HistoryState.Sure: entered when the cloud has proven the witness, or when there is none; ends when the link is lost, a
//     stream breaks, or content from elsewhere is to be resumed. (TestOneQuestionAfterEachLoss)
//   - HistoryState.Failing: entered when the question about the witness gets no answer; ends when it gets one, or when Sure is
//     lost anew. (TestWhatCameFromElsewhereIsProvenFirst)
//   - HistoryState.Refused: entered when an API server refuses the question; ends when it answers otherwise, or when Sure is lost
//     anew. (TestFreshEndsWithARefusedQuestion)
//   - HistoryState.Floor: entered when the cloud has forgotten the revision that would prove the witness; ends when a feed has
//     listed the cloud, for that feed, and when a later history begins, for all feeds. (TestAListBelowTheFloorIsListedOnce,
//     TestWhatTheCloudForgotIsUnknown)
//   - HistoryState.Alone: entered when the history has changed changesAtOnce times, one of which is forgotten in each
//     changesEvery; ends when changesEvery is over without another change, or when the cloud has not answered for trustAfter.
//     (TestAHistoryThatChangesEverAgain, TestWhoIsAloneReadsTheCloud)
//   - past.notBefore: entered when an attempt fails; ends when backoffMax is over at the latest, when a list is applied, or when
//     the link comes up. (TestFreshEndsWithTheStream)
//   - past.prompt: entered when a source denies an attempt; ends when promptPause is over for a feed that somebody waits for;
//     others wait for deniedPause. (TestWhoIsWaitedForAsksAgainSoonAfterADenial)
//   - past.doubted: entered when a list would remove most of the objects, or goes back; ends when the pause of its doubt.Policy
//     is over. (TestAListThatRemovesMuchIsNotBelievedAtOnce)
//   - Machine.older: entered when a list is older than the sink; ends when it is believed, when a newer list comes, or when none
//     is offered for ten minutes. (TestTheCloudsHistoryWasSetBack)
//   - Refusing: entered when a source refuses, or fails pastPatience times in a row; ends when its pause is over, or when its
//     link comes up. (TestAMirrorThatRefusesIsNoReasonToStandStill)
//   - Stale: entered when a mirror's snapshot is not newer than the sink; ends when up to twice mirrorPause is over, when the
//     cloud moves the sink, or when the mirror begins anew. (TestAMirrorOfAnEarlierHistoryIsOfNoUse)
//   - Expired: entered when a source has forgotten the sink's revision; ends when the sink has moved, or is listed.
//     (TestTheMirrorBeganLater, TestTheCloudForgot)
//   - reading.behind: entered when a mirror's watch opens behind the sink; ends when an event comes, or when behindTime is over,
//     with the attempt. (TestAFollowerAheadOfTheMirrorDoesNotWaitThere)
//   - Machine.kept: entered when a list in pages breaks off; ends when the list is complete, when keepPages is over, or when the
//     sink or the history moves. (TestABrokenFillGoesOnWhereItStood, TestStories)
//   - Machine.whole: entered when the server has forgotten the revision of a list's pages; ends when the next list ends.
//     (TestAServerForgetsThePages, TestStories)
//   - Machine.demand: entered when a client asks for the present state; ends when the sink has caught up, and meanwhile
//     promptPause counts. (TestRefreshListsInsteadOfResuming)
//   - Machine.needs: entered when the cloud is up and the sink needs a list; ends when the sink needs none, or when the cloud is
//     down. The feed lists when coverWait, electWait or fillWait is over. (TestAFollowerWaitsForTheLeaderBeforeItLists)
//   - Machine.heard: entered when a watch of the cloud has worked; ends when preciousFor is over.
//     (TestAListThatRemovesMuchIsNotBelievedAtOnce)
//   - Machine.foreign: entered when the content comes from the disk or the mirror; ends when the cloud has proven it, or is
//     listed. (TestStories)
//   - FillsNext: entered when a list waits for its turn; ends when the turn comes, or when the list is not wanted any more.
//     (TestAFillWaitsForItsTurn)
//   - Coverage.until: entered when the leader's declaration is seen to change; ends when coverFresh is over, when it declares
//     nothing, or when the coordinator is lost. (TestADeclarationFadesWithoutRenewals,
//     TestWhatIsNotDeclaredAnyLongerIsNotCoveredAtOnce)
//   - underWay.until: entered when the leader's list of a resource has another page; ends when fillFresh is over, or fillPushed
//     after the list's end. (TestWhatTheLeaderReadsIsKnown, TestWhoAsksLateLearnsThatTheLeaderIsSilent)
//   - prospect: entered when a request comes that the replica cannot answer yet; ends when the prospect is certain, or when
//     patience is over. (TestACloudThatDoesNotTell)
//   - Set.tooLarge: entered when a selection exceeds its client's budget; ends when passOnFor is over.
//     (TestWhatWasTooLargeIsTriedAgain)
//   - Member.wanted: entered when somebody asks for one of the hub's own selections; ends when the selection is no longer the
//     hub's. (TestChange)
//   - Member.unused: entered when the last request of a selection ends; ends when another one comes, or with the selection when
//     idleTime is over. (TestWhatNobodyAsksForEndsAndBeginsAnew)
//   - Member.ending: entered when a selection is given up; ends when its goroutines have returned, and the next member begins.
//     (TestWhatStillEndsIsWaitedFor)
//   - Member.denied: entered when a reachable cloud denies a caller its selection; ends when the cloud no longer denies it or no
//     longer answers, or with the selection when deniedFor is over. (TestARightThatComesBackInTime, TestARightThatWasTakenBack)
//   - needs.all: entered when a Pod uses an object; ends when kubelet's Pods show that none does.
//     (TestWhatThePodsNeedStaysOnTheDisk)
//   - storedPods.at: entered when the Pods are read from the disk; ends when needsEvery is over. (TestWhichPodsTheNodeHas)
//   - Saver.taken: entered when the disk has taken the replica's content; ends when the disk refuses a change or has lost what
//     was queued. The Saver then tries again after savePauseMax at most. (TestADiskThatCannotBeWrittenForAWhile,
//     TestADiskThatHasLostWhatItTook)
package cache
