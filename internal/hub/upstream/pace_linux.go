package upstream

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// linux is a connection of Linux.
type linux struct{ raw syscall.RawConn }

func kernelOf(raw syscall.RawConn) kernel { return linux{raw} }

// trip implements kernel.
func (l linux) trip() (least time.Duration, segment int) {
	_ = l.raw.Control(func(fd uintptr) { // it fails once the connection is closed
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		if segment = int(info.Advmss); info.Min_rtt != ^uint32(0) { // of none
			least = time.Duration(info.Min_rtt) * time.Microsecond
		}
	})
	return least, segment
}

// clamp implements kernel. Linux takes nothing back that it has told the other end: a smaller window holds once what is on its
// way has come.
func (l linux) clamp(bytes int) error {
	var failure error
	if err := l.raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, bytes)
	}); err != nil {
		return err
	}
	return failure
}
