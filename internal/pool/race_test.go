//go:build race

package pool

// Under the race detector, which makes what follows ten times slower, there is less of it; a run without has all of it.
const (
	healingSeeds   = 4
	rewrittenBytes = minQuotaBytes / 4 * 5
)
