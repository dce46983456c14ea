package access

import (
	"net/http"
	"net/url"

	"yurtcoordinator/internal/pool/exchange"
)

// FromHere refuses requests that another site's page makes through a browser. A browser that has an operator's certificate
// shows it whichever page makes the request. It lets no page of another site read an answer, but it lets any page open a
// WebSocket, which exec uses. Browsers name the page's site in the header Origin; kubectl, hubs and other programs do not send
// that header.
func FromHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin, named := r.Header["Origin"]; named && !isHere(origin, r.Host) {
			(&exchange.Reply{ResponseWriter: w}).Refuse(r.Context(), exchange.Refused(http.StatusForbidden,
				"a page of another site (%.100q) asks this coordinator by way of your browser: close it", origin))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isHere(origin []string, host string) bool {
	if len(origin) != 1 {
		return false
	}
	u, err := url.Parse(origin[0])
	return err == nil && u.Scheme == "https" && u.Host == host
}
