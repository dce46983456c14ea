// Package settings reads the pool's settings for its hubs, and tells the cloud which of them this hub uses.
// coordinator-controller writes the settings into a ConfigMap (edge.PoolName.SettingsConfigMap) that the pool's nodes may read.
//
// Read parses the ConfigMap. A Notice follows it, and keeps the last usable settings on disk, for a start without the cloud.
// Settings applies them to the hub, and writes the generation that the hub runs with into an annotation of the hub's own Node.
//
// Invariants:
//   - Settings are applied as a whole or not at all.
//   - Unusable settings change nothing and are not kept.
//   - The hub writes the annotation when it first knows the pool's settings after a start, and then only when the annotation
//     changes.
//
// The alternative to the annotation was the report of the pool's leader (lead.Reporter), which also says which nodes reach the
// coordinator. But a pool without a coordinator has no leader. The report would say no more about a hub that is cut off, because
// such a hub gets no new settings.
//
// # How a ConfigMap is followed
//
// A Notice follows a ConfigMap that coordinator-controller keeps in the cloud for the hubs of a pool. It also keeps the content
// in a file, so that a hub that starts without the cloud knows it.
//
// Invariants: a Notice forgets the content in two cases only. In the first, a watch reports that the ConfigMap was deleted. In
// the second, the cloud refuses the read, or its list lacks the ConfigMap, for as long as ForgetAfter. A Notice keeps the content
// after any other error, if the ConfigMap is unusable, and if the cloud is unreachable or seems empty for a moment.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Notice.known: entered when the cloud says something usable; ends when it says something else, or is forgotten.
//     (TestRemembered, TestRun)
//   - Notice.refusedSince: entered when the cloud refuses to show the ConfigMap; ends when it answers otherwise, or when
//     ForgetAfter is over, with what was known. (TestRefused, TestPatience)
//   - Notice.missingSince: entered when a list lacks the ConfigMap; ends when one has it, or when ForgetAfter is over, with what
//     was known; it is listed again within Recheck. (TestACloudThatSeemsEmpty, TestRun)
//   - Settings.report: entered when the pool's settings are refused, or need a restart; ends when the pool says others that are
//     usable, or none. (TestALife)
package settings
