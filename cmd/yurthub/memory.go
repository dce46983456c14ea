package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// By default, Go lets the heap grow to twice the live objects. In a hub with large copies, the live objects are raw bytes,
	// without pointers that a collection must follow. So collecting twice as often has no measurable cost, and saves a quarter
	// of the hub's memory; see docs/benchmarks-log.md. A small heap is collected often anyway.
	often, seldom = 50, 100
	// A live heap above manyBytes is collected often, one below fewBytes seldom; in between nothing changes.
	manyBytes, fewBytes = 16 << 20, 10 << 20

	lookEvery = 10 * time.Second
)

// collectByNeed collects a large heap more often, until ctx ends.
func collectByNeed(ctx context.Context) error {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	percent := seldom
	for {
		metrics.Read(live)
		if next := gcPercent(percent, live[0].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// gcPercent returns the next GOGC for a current GOGC and so many live bytes.
func gcPercent(now int, live uint64) int {
	switch {
	case live >= manyBytes:
		return often
	case live <= fewBytes:
		return seldom
	default:
		return now
	}
}
