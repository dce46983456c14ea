package conns

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// peek returns an error if the stream to a socket has ended. It waits for nothing.
func peek(fd uintptr) error {
	n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err == nil && n == 0:
		return io.EOF
	default:
		return err
	}
}
