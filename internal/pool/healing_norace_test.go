//go:build !race

package pool

// healingSeeds are the random histories of TestFailedWritesHeal, of 60 pushes each.
const healingSeeds = 20
