//go:build !race

package mirror

// healingSeeds are the random histories of TestFailedWritesHeal, of 60 pushes each.
const healingSeeds = 20
