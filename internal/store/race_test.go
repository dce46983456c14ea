//go:build race

package store

// slow is how many times fewer tries there are: the race detector makes everything slower.
const slow = 8
