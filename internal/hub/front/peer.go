package front

import (
	"net"
	"net/http"

	"yurtcoordinator/internal/conns"
)

// ownerOf returns the number of the user whose process made a request on this host, for people who look for it; "unknown" if
// that cannot be found out, as for a request from elsewhere.
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
