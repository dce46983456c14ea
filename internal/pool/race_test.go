//go:build race

package pool

// rewrittenBytes are fewer under the race detector, which makes what follows ten times slower.
const rewrittenBytes = minQuotaBytes / 4 * 5
