package upstream

import (
	"context"
	"net"
	"time"

	"yurtcoordinator/internal/ends"
)

// Dials returns the network with Dial and DialNear filled in where it has none.
func Dials(n ends.Net) ends.Net {
	if n.Dial == nil {
		n.Dial = Dial
	}
	if n.DialNear == nil {
		n.DialNear = DialNear
	}
	return n
}

// Dial opens a TCP connection with keep-alive and a bound on unacknowledged data.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	// Routers forget connections that are quiet for minutes, and upgraded streams have no pings of their own. Other connections
	// carry a bookmark or a ping before their keep-alive is due.
	return dial(ctx, network, address, unackedTimeout,
		net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: 5 * time.Second, Count: 3})
}

// DialNear is Dial for a server on the same LAN, where keep-alives cost nothing. If the server's machine loses power, the
// connection fails within nearTimeout and one second, whatever protocol uses it.
func DialNear(ctx context.Context, network, address string) (net.Conn, error) {
	return dial(ctx, network, address, nearTimeout,
		net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: int(nearTimeout / time.Second)})
}

func dial(ctx context.Context, network, address string, unacked time.Duration, alive net.KeepAliveConfig) (net.Conn, error) {
	dialer := &net.Dialer{KeepAliveConfig: alive, Control: limitUnacknowledged(unacked)}
	return dialer.DialContext(ctx, network, address)
}
