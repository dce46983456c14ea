//go:build !race

package pool

const (
	healingSeeds   = 20                // random histories of TestFailedWritesHeal, of 60 pushes each
	rewrittenBytes = 2 * minQuotaBytes // by TestRewritingForeverFitsTheSmallestQuota
)
