// Package onecpu keeps frames in order. When a process sends a frame on a virtual cable, the kernel delivers it on the
// processor that the process runs on. Each processor works in its own time, so frames of a sender that moves between two may
// overtake each other.
package onecpu

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// stayed counts the goroutines that stay on a processor, so that they are spread over the processors.
var stayed atomic.Uint32

// Stay keeps the calling goroutine on one of the processors that it may use. The goroutine gets a thread of its own, which ends
// with it. On a system that does not allow that, nothing changes.
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
