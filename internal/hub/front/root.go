package front

import (
	"net/http"

	"yurtcoordinator/internal/conns"
)

// OfRoot reports whether a request came from a process of root's on this host.
func OfRoot(r *http.Request) bool {
	owner, err := conns.OfRequest(r)
	return err == nil && owner == "0"
}
