package upstream

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged makes the kernel give up a connection whose data was not acknowledged for unackedTimeout; by
// default it would try for 15 minutes.
func limitUnacknowledged(_, _ string, raw syscall.RawConn) error {
	var failure error
	if err := raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(unackedTimeout.Milliseconds()))
	}); err != nil {
		return err
	}
	return failure
}
