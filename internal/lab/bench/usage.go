package bench

import "time"

// Usage is what a process has used.
type Usage struct {
	// CPU is its processor time since its start, user and system.
	CPU time.Duration
	// Memory is what it has now; Peak the most that it has had resident, in bytes.
	Memory Memory
	Peak   int64
}

// UsageOf reads it for a process of this machine.
func UsageOf(pid int) (u Usage, err error) {
	if u.CPU, err = processorTime(pid); err != nil {
		return Usage{}, err
	}
	if u.Memory, err = memoryOf(pid); err != nil {
		return Usage{}, err
	}
	u.Peak, err = peakOf(pid)
	return u, err
}
