package upstream

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// sparing is an HTTP/2 connection that saves packets on small requests. A heartbeat goes out in one packet, and the kernel
// acknowledges the two packets of its answer together. Each packet costs 66 bytes for headers of Ethernet, IP and TCP, and each
// TLS record costs 22.
type sparing struct {
	*tls.Conn
	out *joiner
	raw syscall.RawConn // nil where a proxy's connection has none
}

func newSparing(c *tls.Conn) *sparing {
	s := &sparing{Conn: c, out: &joiner{to: c}}
	if own, ok := c.NetConn().(*conn); ok {
		if socket, ok := own.Conn.(syscall.Conn); ok {
			s.raw, _ = socket.SyscallConn() // it fails only on a connection that is gone already
		}
	}
	return s
}

// Write implements net.Conn.
func (s *sparing) Write(p []byte) (int, error) {
	if s.raw != nil {
		delayAcknowledgement(s.raw)
	}
	return s.out.Write(p)
}

// Close closes the connection by a reset, as conn's Close does. It sends no TLS close_notify, which the reset would drop.
func (s *sparing) Close() error {
	s.out.end()
	return s.NetConn().Close()
}

// joinFor is how long a request's headers wait for its body. The transport writes a body's first part right after the headers.
const joinFor = time.Millisecond

// joiner writes HTTP/2 frames. It joins the headers of a request that has a body with the next frame.
type joiner struct {
	to io.Writer

	mu    sync.Mutex // held while writing, so that frames keep their order
	held  []byte     // headers that are not written yet
	late  *time.Timer
	err   error // of headers that were written late; the next Write returns it
	ended bool
}

// Write implements io.Writer.
func (j *joiner) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.err != nil:
		return 0, j.err
	case len(j.held) > 0:
		before := len(j.held)
		j.late.Stop()
		n, err := j.to.Write(append(j.held, p...))
		j.held = j.held[:0]
		return max(n-before, 0), err
	case !j.ended && bodyFollows(p):
		j.held = append(j.held, p...)
		if j.late == nil {
			j.late = time.AfterFunc(joinFor, j.flush)
		} else {
			j.late.Reset(joinFor)
		}
		return len(p), nil
	}
	return j.to.Write(p)
}

// flush writes headers whose body is late.
func (j *joiner) flush() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.held) > 0 && !j.ended {
		_, j.err = j.to.Write(j.held)
	}
	j.held = j.held[:0]
}

// end drops what is held.
func (j *joiner) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended, j.held = true, nil
	if j.late != nil {
		j.late.Stop()
	}
}

// bodyFollows reports whether p is one frame, with all headers of a request that has a body.
func bodyFollows(p []byte) bool {
	const head = 9 // length (3), type, flags, stream (4): RFC 9113, section 4.1
	if len(p) < head || http2.FrameType(p[3]) != http2.FrameHeaders {
		return false
	}
	length := binary.BigEndian.Uint32(p) >> 8
	flags := http2.Flags(p[4])
	return len(p) == head+int(length) && flags.Has(http2.FlagHeadersEndHeaders) && !flags.Has(http2.FlagHeadersEndStream)
}
