package conns

import "net"

// LocalListener is a listener on a loopback address, where all of the host's programs share one source address.
type LocalListener struct {
	net.Listener
	owner  func(net.Conn) (user string, own bool)
	others *tally[string] // by the user of the process that has made the connection; empty if unknown
}

// Local returns a listener that never closes a connection that this process itself has made. Of all other connections it keeps
// as many as most says: one more closes the oldest of the user that has the most. So a short request is served even if other
// programs hold connections open, or another user's open ever more. The user is no proof: many images run as the same one.
func Local(l net.Listener, most int) *LocalListener {
	others := newTally[string](most, most)
	others.yields = true
	return &LocalListener{Listener: l, owner: userOf, others: others}
}

// Accept implements net.Listener.
func (l *LocalListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	user, own := l.owner(c)
	if own {
		return c, nil
	}
	leave, crowded, _ := l.others.enter(user, c) // it yields
	if crowded != nil {
		_ = crowded.Close()
	}
	return &conn{Conn: c, leave: leave}, nil
}
