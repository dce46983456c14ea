package conns

import (
	"container/list"
	"net"
	"os"
	"strconv"
	"sync"
)

// LocalListener is a listener on a loopback address, where all of the host share one source.
type LocalListener struct {
	net.Listener
	most int
	own  string // the user of this process

	mu     sync.Mutex
	others *list.List // of *local, the oldest first
}

// Local returns a listener that never breaks off a connection of this process's own user. Of all others it keeps most: when
// there is one more, the oldest is closed. So a short request is served, whoever else holds connections open.
func Local(l net.Listener, most int) *LocalListener {
	return &LocalListener{Listener: l, most: most, own: strconv.Itoa(os.Geteuid()), others: list.New()}
}

// Accept implements net.Listener.
func (l *LocalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if owner, err := OwnerOf(c.LocalAddr(), c.RemoteAddr()); err == nil && owner == l.own {
		return c, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others.Len() >= l.most {
		oldest := l.others.Front()
		_ = oldest.Value.(*local).Conn.Close() //nolint:forcetypeassert // nothing else is put there
		l.others.Remove(oldest)
	}
	other := &local{Conn: c, of: l}
	other.position = l.others.PushBack(other)
	return other, nil
}

type local struct {
	net.Conn
	of       *LocalListener
	position *list.Element
}

// Close implements net.Conn.
func (c *local) Close() error {
	c.of.mu.Lock()
	c.of.others.Remove(c.position) // nothing, if it is not there
	c.of.mu.Unlock()
	return c.Conn.Close()
}
