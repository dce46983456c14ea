//go:build !linux

package upstream

import "syscall"

// kernelOf returns nil: other kernels have no such bound.
func kernelOf(syscall.RawConn) kernel { return nil }
