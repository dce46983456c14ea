package front

import (
	"net"
	"net/http"

	"yurtcoordinator/internal/conns"
)

// ownerOf returns the numeric user ID of the process that made a request on this host, for people who investigate. It returns
// "unknown" if that cannot be found out, as for a request from elsewhere.
func ownerOf(r *http.Request) string {
	here, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	peer, err := net.ResolveTCPAddr("tcp", r.RemoteAddr)
	if !ok || err != nil || !peer.IP.IsLoopback() {
		return "unknown"
	}
	owner, err := conns.OwnerOf(here, peer)
	if err != nil {
		return "unknown"
	}
	return owner
}
