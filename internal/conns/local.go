package conns

import (
	"container/list"
	"net"
	"sync"
)

// LocalListener is a listener on a loopback address, where all of the host's programs share one source address.
type LocalListener struct {
	net.Listener
	most int
	own  func(net.Conn) bool

	mu     sync.Mutex
	others *list.List // of *local, the oldest first
}

// Local returns a listener that never closes a connection that this process itself has made. Of all other connections it keeps
// as many as most says: one more closes the oldest. So a short request is served even if other programs hold connections open.
// The user is no proof: many images run as the same one.
func Local(l net.Listener, most int) *LocalListener {
	return &LocalListener{Listener: l, most: most, own: isOwn, others: list.New()}
}

// Accept implements net.Listener.
func (l *LocalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.own(c) {
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
