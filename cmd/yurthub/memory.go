package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// Go lets the heap grow to twice what is live. What is live in a hub with large copies are objects as they came, in which
	// there is nothing to look for: collecting twice as often costs it nothing that can be measured, and saves a quarter of
	// its memory; see docs/benchmarks-log.md. A small heap is collected often as it is.
	often, seldom = 50, 100
	// manyBytes of live heap are collected often, fewBytes seldom; in between nothing changes.
	manyBytes, fewBytes = 16 << 20, 10 << 20

	lookEvery = 10 * time.Second
)

// collectByNeed has the heap of a hub that is large collected more often, until ctx ends.
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

// gcPercent is what GOGC is to be after it has been something else, with so many bytes live.
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
