//go:build !linux

package upstream

import (
	"syscall"
	"time"
)

// limitUnacknowledged does nothing where the kernel has no such limit: pings and probes find dead connections.
func limitUnacknowledged(time.Duration) func(network, address string, raw syscall.RawConn) error {
	return nil
}

// delayAcknowledgement does nothing where the kernel decides alone.
func delayAcknowledgement(syscall.RawConn) {}

// rawSocket does not know the state of a connection, so the hub never knocks at one.
type rawSocket struct{ syscall.RawConn }

func (rawSocket) state() (tcpState, bool) { return tcpState{}, false }

func (rawSocket) keepAlive(time.Duration) {}
