package front

import (
	"net"
	"net/http"
	"net/netip"

	"yurtcoordinator/internal/conns"
)

// OfRoot reports whether a request came from a process of root's on this host.
func OfRoot(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if !ok || err != nil {
		return false
	}
	owner, err := conns.OwnerOf(local, net.TCPAddrFromAddrPort(from))
	return err == nil && owner == "0"
}
