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

// delayAcknowledgement has the kernel acknowledge together what is about to arrive, within 40 ms. After a pause it would
// acknowledge each packet at once, and soon does so again: this holds for one answer.
func delayAcknowledgement(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { // without it, packets are more
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	})
}
