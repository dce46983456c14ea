//go:build !race

package shareserver

// healingSeeds are the random histories of TestFailedWritesHeal, of 60 pushes each.
const healingSeeds = 20
