//go:build race

package shareserver

// healingSeeds are fewer under the race detector, which makes what follows ten times slower.
const healingSeeds = 4
