package front

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// maxSockets bounds what is read of the kernel's list of sockets: 100 bytes each.
const maxSockets = 4 << 20

// ownerOf returns the number of the user whose process made a request on this host, for people who look for it; "unknown" if
// that cannot be found out, as for a request from elsewhere.
func ownerOf(r *http.Request) string {
	here, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return "unknown"
	}
	local, err := netip.ParseAddrPort(here.String())
	peer, err2 := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || err2 != nil || !peer.Addr().IsLoopback() {
		return "unknown"
	}
	for _, list := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(list)
		if err != nil {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(f, maxSockets))
		f.Close()
		if err != nil {
			continue
		}
		if uid := ownerIn(content, peer.Port(), local.Port()); uid != "" {
			return uid
		}
	}
	return "unknown"
}

// ownerIn returns the user of the socket that is bound to one port and connected to another, both of this host, in the kernel's
// list (proc_pid_net(5)); empty if there is none.
func ownerIn(list []byte, from, to uint16) string {
	source, target := fmt.Sprintf(":%04X", from), fmt.Sprintf(":%04X", to)
	for line := range bytes.Lines(list) {
		fields := strings.Fields(string(line))
		if len(fields) > 7 && strings.HasSuffix(fields[1], source) && strings.HasSuffix(fields[2], target) {
			return fields[7]
		}
	}
	return ""
}
