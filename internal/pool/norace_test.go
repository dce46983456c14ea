//go:build !race

package pool

// rewrittenBytes are those that TestRewritingForeverFitsTheSmallestQuota writes.
const rewrittenBytes = 2 * minQuotaBytes
