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

// rawSocket knows nothing of a connection: nobody knocks.
type rawSocket struct{ syscall.RawConn }

func (rawSocket) state() (tcpState, bool) { return tcpState{}, false }

func (rawSocket) keepAlive(time.Duration) {}
