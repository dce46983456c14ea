package access

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

// linkCookie has the secret of a link after the first look. Browsers take a name with this prefix only over TLS.
const linkCookie = "__Secure-openyurt-page"

// LinkIssuer makes, tells and withdraws Links for those whom RBAC lets in: operators.
type LinkIssuer struct {
	Links *Links
	// Open opens the port where links lead, unless it is open, and returns the ADDRESS:PORTs of it.
	Open func(context.Context) (at []string, err error)
}

// ServeHTTP implements http.Handler.
func (i LinkIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	reply := &exchange.Reply{ResponseWriter: w}
	switch {
	case r.URL.Path != edge.PathLinks:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		_ = reply.Tell(http.StatusOK, edge.PageLinks{Links: i.Links.Live()}) // else the caller is gone
	case r.Method == http.MethodDelete:
		_ = reply.Tell(http.StatusOK, edge.PageLinks{Links: i.Links.Withdraw()})
	case r.Method == http.MethodPost:
		made, err := i.issue(r)
		if err != nil {
			reply.Refuse(r.Context(), err)
			return
		}
		_ = reply.Tell(http.StatusCreated, made)
	default:
		http.Error(w, "a link is made by POST, told by GET and withdrawn by DELETE", http.StatusMethodNotAllowed)
	}
}

// issue makes a link that ends with its issuer's certificate, if not before.
func (i LinkIssuer) issue(r *http.Request) (made edge.NewPageLink, err error) {
	caller, known := request.UserFrom(r.Context())
	if !known || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return made, exchange.Refused(http.StatusForbidden, "only a person with a certificate makes a link")
	}
	life, err := time.ParseDuration(r.URL.Query().Get(edge.QueryFor))
	if err != nil {
		return made, exchange.Refused(http.StatusBadRequest, "%s=%.40q is no time such as 8h", edge.QueryFor,
			r.URL.Query().Get(edge.QueryFor))
	}
	if life > edge.MaxLinkLife {
		return made, exchange.Refused(http.StatusBadRequest, "%v", ErrLinkLife)
	}
	return i.grant(r.Context(), caller, min(life, r.TLS.PeerCertificates[0].NotAfter.Sub(i.Links.clock.Wall())))
}

func (i LinkIssuer) grant(ctx context.Context, issuer user.Info, life time.Duration) (made edge.NewPageLink, err error) {
	made.Secret, made.PageLink, err = i.Links.Make(issuer, life)
	switch {
	case errors.Is(err, ErrManyLinks):
		return made, exchange.Refused(http.StatusConflict, "%v", err)
	case err != nil:
		return made, exchange.Refused(http.StatusBadRequest, "%v", err)
	}
	if made.At, err = i.Open(ctx); err != nil {
		i.Links.Forget(made.Secret)
		return made, exchange.Refused(http.StatusServiceUnavailable, "can't open the port for links: %v", err)
	}
	return made, nil
}

// ByLink shows page to callers with a valid link, and nothing to others. On the first request it exchanges the secret in the
// address for a cookie, so that the secret stays neither in the browser's address line nor in its history.
func ByLink(l *Links, page http.Handler) http.Handler {
	return FromHere(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for key, value := range map[string]string{
			"Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
		} {
			w.Header().Set(key, value) // page sets its own
		}
		switch {
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			refuseLook(w, http.StatusMethodNotAllowed, "this page can only be read")
		case r.ContentLength != 0:
			refuseLook(w, http.StatusBadRequest, "a look has no body")
		case !strings.HasPrefix(r.URL.Path, edge.PathPage+"/"):
			refuseLook(w, http.StatusNotFound, "there is nothing here: use the whole link")
		case r.URL.Query().Has(edge.QuerySecret):
			enter(l, w, r.URL.Query().Get(edge.QuerySecret))
		default:
			// A program at another port of this address may have set one of the same name.
			if !slices.ContainsFunc(r.CookiesNamed(linkCookie), l.opens) {
				refuseLook(w, http.StatusForbidden, noLink)
				return
			}
			page.ServeHTTP(w, r)
		}
	}))
}

const noLink = "This page is shown to whoever has a link that still works. Open the whole link again, by scanning it, or by " +
	"pasting it into the address line. Links end: kubectl yurt ui POOL --link makes a new one."

// opens reports whether a cookie has the secret of a link.
func (l *Links) opens(c *http.Cookie) bool {
	_, err := l.Find(c.Value)
	return err == nil
}

// Unlinked returns next, which does not see a link's secret in a request's address. A person may open a link at the
// coordinator's own port by mistake, and both kube-apiserver and its audit log the addresses of what they refuse.
func Unlinked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The error is about a part that nobody would read: it goes, too.
		if query, err := url.ParseQuery(r.URL.RawQuery); err != nil || query.Has(edge.QuerySecret) {
			query.Del(edge.QuerySecret)
			without := *r.URL
			without.RawQuery = query.Encode()
			r = r.WithContext(r.Context()) // a copy
			r.URL, r.RequestURI = &without, without.RequestURI()
		}
		next.ServeHTTP(w, r)
	})
}

// enter answers the first look with a link.
func enter(l *Links, w http.ResponseWriter, secret string) {
	found, err := l.Find(secret)
	if err != nil {
		refuseLook(w, http.StatusForbidden, noLink)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: linkCookie, Value: secret, Path: edge.PathPage + "/",
		MaxAge: max(1, int(found.Until.Sub(l.clock.Wall()).Seconds())),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Location", edge.PathPage+"/")
	w.WriteHeader(http.StatusSeeOther)
}

// refuseLook answers, and ends the connection: who is refused keeps no place.
func refuseLook(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, code)
}
