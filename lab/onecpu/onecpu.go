// Package onecpu keeps what is sent in order. The kernel hands a frame that a virtual cable takes to the processor that sent it,
// and lets each processor work in its own time: frames of a sender that moves between two may overtake each other.
package onecpu

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// stayed counts those that stay, so that they are spread.
var stayed atomic.Uint32

// Stay keeps the calling goroutine on one of the processors that it may use, in a thread of its own, which ends with it. On a
// system that does not allow that, nothing changes.
func Stay() {
	runtime.LockOSThread()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return
	}
	if only, ok := nth(&may, int(stayed.Add(1))); ok {
		_ = unix.SchedSetaffinity(0, only)
	}
}

// nth returns the n-th processor of a set, round and round, unless it is empty.
func nth(may *unix.CPUSet, n int) (only *unix.CPUSet, ok bool) {
	count := may.Count()
	if count == 0 {
		return nil, false
	}
	only = &unix.CPUSet{}
	for cpu, seen := 0, 0; ; cpu++ {
		if !may.IsSet(cpu) {
			continue
		}
		if seen == n%count {
			only.Set(cpu)
			return only, true
		}
		seen++
	}
}
