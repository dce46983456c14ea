package conns

import "net"

// LocalListener is a listener on a loopback address, where all of the host's programs share one source address.
type LocalListener struct {
	net.Listener
	own    func(net.Conn) bool
	owner  func(net.Conn) string
	others *tally[string] // by owner
}

// Local returns a listener that never closes a connection that this process itself has made. Of all other connections it keeps at
// most the given number. One more closes the oldest connection of the user who has the most. So a short request is served even if
// other programs hold connections open, or if another user's programs open ever more. A user may be many programs, because many
// images run as the same user.
func Local(l net.Listener, most int) *LocalListener {
	others := newTally[string](most, most)
	others.yields = true
	return &LocalListener{Listener: l, own: isOwn, owner: ownerOf, others: others}
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
	leave, crowded, _ := l.others.enter(l.owner(c), c) // it yields
	if crowded != nil {
		_ = crowded.Close()
	}
	return &conn{Conn: c, leave: leave}, nil
}
