package access

import (
	"net/http"
	"net/url"

	"yurtcoordinator/internal/pool/exchange"
)

// FromHere refuses what another site's page has a browser ask. A browser that has an operator's certificate shows it for every
// page, and lets no page read the answer; but a WebSocket it lets any page open, and exec is one. Browsers name the page's site
// in the header Origin; kubectl, hubs and other programs name none.
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
