package model

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// Random gives the random numbers that follow from a seed. It is safe for concurrent use.
type Random struct {
	mu      sync.Mutex
	numbers *rand.ChaCha8
}

// NewRandom returns a Random that gives the numbers of a seed.
func NewRandom(seed uint64) *Random {
	var s [32]byte
	binary.LittleEndian.PutUint64(s[:], seed)
	return &Random{numbers: rand.NewChaCha8(s)}
}

// Uint64 makes a Random a rand.Source.
func (r *Random) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numbers.Uint64()
}

// Read fills p, and never fails.
func (r *Random) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numbers.Read(p)
}
