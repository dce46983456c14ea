package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

func TestGCPercent(t *testing.T) {
	for _, tt := range []struct {
		now  int
		live uint64
		want int
	}{
		{seldom, 0, seldom}, {seldom, manyBytes - 1, seldom}, {seldom, manyBytes, often}, {often, manyBytes - 1, often},
		{often, fewBytes + 1, often}, {often, fewBytes, seldom}, {seldom, 1 << 40, often},
	} {
		if got := gcPercent(tt.now, tt.live); got != tt.want {
			t.Errorf("%d with %d bytes live: %d, want %d", tt.now, tt.live, got, tt.want)
		}
	}
}

func TestALargeHeapIsCollectedOften(t *testing.T) {
	was := debug.SetGCPercent(seldom)
	defer debug.SetGCPercent(was)
	large := make([]byte, 2*manyBytes)
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*lookEvery)
		defer cancel()
		if err := collectByNeed(ctx); err != nil {
			t.Error(err)
		}
	})
	if got := debug.SetGCPercent(seldom); got != often {
		t.Errorf("GOGC is %d, want %d", got, often)
	}
	runtime.KeepAlive(large)
}
