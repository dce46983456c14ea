package bench

import "time"

// Usage is what a process has used.
type Usage struct {
	// CPU is its processor time since its start, user and system.
	CPU time.Duration
	// Memory is its memory now. Peak is the highest resident memory, in bytes.
	Memory Memory
	Peak   int64
}

// UsageOf reads the usage of a process of this machine.
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
