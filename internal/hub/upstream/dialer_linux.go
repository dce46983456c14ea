package upstream

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged returns a socket option with which the kernel gives up a connection if data or a keep-alive stays
// unacknowledged for the given time. By default the kernel keeps trying for 15 minutes.
func limitUnacknowledged(most time.Duration) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var failure error
		if err := raw.Control(func(fd uintptr) {
			failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(most.Milliseconds()))
		}); err != nil {
			return err
		}
		return failure
	}
}

// delayAcknowledgement makes the kernel acknowledge the packets of the next answer together, within 40 ms. By default, the kernel
// acknowledges each packet at once if the connection was quiet before.
func delayAcknowledgement(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { // without it, packets are more
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	})
}

// rawSocket is the tcpSocket of a real socket in the kernel.
type rawSocket struct{ syscall.RawConn }

func (s rawSocket) state() (is tcpState, known bool) {
	err := s.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Min_rtt == ^uint32(0) { // nothing was acknowledged yet
			return
		}
		is = tcpState{
			acknowledged: time.Duration(info.Last_ack_recv) * time.Millisecond,
			trip:         time.Duration(info.Min_rtt) * time.Microsecond,
			retransmit:   time.Duration(info.Rto) * time.Microsecond,
		}
		known = true
	})
	return is, known && err == nil
}

func (s rawSocket) keepAlive(idle time.Duration) {
	_ = s.Control(func(fd uintptr) { // it fails only on a connection that is gone: the ping that follows says so
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(idle/time.Second))
	})
}
