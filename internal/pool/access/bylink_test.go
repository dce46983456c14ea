package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// thePage tells whether it was asked.
type thePage struct{ asked int }

func (p *thePage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.asked++
	_, _ = io.WriteString(w, "the page")
}

// looks asks for target with cookies and a header, and returns the answer.
func looks(h http.Handler, method, target string, body io.Reader, header http.Header, cookies ...*http.Cookie) *http.Response {
	r, w := httptest.NewRequest(method, "https://192.0.2.1:10272"+target, body), httptest.NewRecorder()
	for key, values := range header {
		r.Header[key] = values
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, page := NewLinks(ends.Clock{}, nobodyDenied), &thePage{}
		h := ByLink(l, page)
		secret := makes(t, l, "ana", time.Hour)
		first := looks(h, http.MethodGet, "/ui/?link="+secret, nil, nil)
		cookies := first.Cookies()
		if first.StatusCode != http.StatusSeeOther || first.Header.Get("Location") != "/ui/" || len(cookies) != 1 ||
			page.asked > 0 {
			t.Fatalf("%d, %v", first.StatusCode, first.Header)
		}
		c := cookies[0]
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/ui/" || c.MaxAge != 3600 ||
			c.Domain != "" || !strings.HasPrefix(c.Name, "__Secure-") {
			t.Errorf("%+v", c)
		}
		if h := first.Header; h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("the secret stays in a browser, or goes elsewhere: %v", h)
		}
		for _, path := range []string{"/ui/", "/ui/live?page=2", "/ui/page.css"} {
			if a := looks(h, http.MethodGet, path, nil, nil, c); a.StatusCode != http.StatusOK {
				t.Errorf("%s: %d", path, a.StatusCode)
			}
		}
		other := &http.Cookie{Name: c.Name, Value: "bad"} // of a program at another port of this address
		for range 2 {
			page.asked = 2
			if a := looks(h, http.MethodGet, "/ui/", nil, nil, other, c); a.StatusCode != http.StatusOK {
				t.Errorf("beside another's cookie: %d", a.StatusCode)
			}
			other, c = c, other
		}
		time.Sleep(time.Hour)
		if a := looks(h, http.MethodGet, "/ui/", nil, nil, c); a.StatusCode != http.StatusForbidden || page.asked != 3 {
			t.Errorf("after the link's end: %d", a.StatusCode)
		}
	})
}

// TestWhoHasNoLinkSeesNothing, and who has one sees the page alone.
func TestWhoHasNoLinkSeesNothing(t *testing.T) {
	l, page := NewLinks(ends.Clock{}, nobodyDenied), &thePage{}
	h := ByLink(l, page)
	secret, _, err := l.Make(issuer("ana"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	with := func(secret string) *http.Cookie { return &http.Cookie{Name: linkCookie, Value: secret} }
	good := with(secret)
	guess := with(strings.Repeat("A", 43))
	for _, c := range []struct {
		name, method, target string
		body                 io.Reader
		header               http.Header
		cookie               *http.Cookie
		want                 int
	}{
		{"a stranger", http.MethodGet, "/ui/", nil, nil, nil, http.StatusForbidden},
		{"a stranger, of a part", http.MethodGet, "/ui/live", nil, nil, nil, http.StatusForbidden},
		{"a stranger, of the style", http.MethodGet, "/ui/page.css", nil, nil, nil, http.StatusForbidden},
		{"a guessed link", http.MethodGet, "/ui/?link=" + guess.Value, nil, nil, nil, http.StatusForbidden},
		{"an empty link", http.MethodGet, "/ui/?link=", nil, nil, nil, http.StatusForbidden},
		{"a guess beside a cookie", http.MethodGet, "/ui/?link=x", nil, nil, good, http.StatusForbidden},
		{"a guessed cookie", http.MethodGet, "/ui/", nil, nil, guess, http.StatusForbidden},
		{"the link elsewhere", http.MethodGet, "/api/v1/pods?link=" + good.Value, nil, nil, nil, http.StatusNotFound},
		{"with a link", http.MethodGet, "/ui/", nil, nil, good, http.StatusOK},
		{"Pods with a link", http.MethodGet, "/api/v1/pods", nil, nil, good, http.StatusNotFound},
		{"links with a link", http.MethodGet, edge.PathLinks, nil, nil, good, http.StatusNotFound},
		{"links with a link, made", http.MethodPost, edge.PathLinks, nil, nil, good, http.StatusMethodNotAllowed},
		{"metrics with a link", http.MethodGet, "/metrics", nil, nil, good, http.StatusNotFound},
		{"what only begins so", http.MethodGet, "/uix", nil, nil, good, http.StatusNotFound},
		{"a change", http.MethodPost, "/ui/", nil, nil, good, http.StatusMethodNotAllowed},
		{"a head", http.MethodHead, "/ui/", nil, nil, good, http.StatusMethodNotAllowed},
		{"a body", http.MethodGet, "/ui/", strings.NewReader("x"), nil, good, http.StatusBadRequest},
		{"another site's page", http.MethodGet, "/ui/", nil, http.Header{"Origin": {"https://evil.example"}}, good,
			http.StatusForbidden},
	} {
		before := page.asked
		var cookies []*http.Cookie
		if c.cookie != nil {
			cookies = append(cookies, c.cookie)
		}
		a := looks(h, c.method, c.target, c.body, c.header, cookies...)
		if shown := page.asked > before; a.StatusCode != c.want || shown != (c.want == http.StatusOK) || len(a.Cookies()) > 0 {
			t.Errorf("%s: %d, shown %t, cookies %v; want %d", c.name, a.StatusCode, shown, a.Cookies(), c.want)
		}
	}
}

// issues asks for links as a user whose certificate lasts, and reads the answer into told.
func issues(t *testing.T, i LinkIssuer, method, query string, lasts time.Duration, told any) int {
	t.Helper()
	r, w := httptest.NewRequest(method, "https://192.0.2.1:10270"+edge.PathLinks+query, nil), httptest.NewRecorder()
	r.TLS = nil
	if lasts > 0 {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().Add(lasts)}}}
	}
	i.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), issuer("ana"))))
	if err := json.Unmarshal(w.Body.Bytes(), told); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%s: %v", method, w.Header())
	}
	return w.Code
}

func TestLinksAreMadeToldAndWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		i := LinkIssuer{Links: NewLinks(ends.Clock{}, nobodyDenied), Open: func(context.Context) ([]string, error) {
			return []string{"192.0.2.1:10272"}, fails
		}}
		var made, shorter edge.NewPageLink
		if code := issues(t, i, http.MethodPost, "?for=2h", 24*time.Hour, &made); code != http.StatusCreated ||
			made.Issuer != "ana" || !made.Until.Equal(time.Now().Add(2*time.Hour)) || len(made.At) != 1 ||
			len(made.Secret) != 43 {
			t.Errorf("%d, %+v", code, made)
		}
		if code := issues(t, i, http.MethodPost, "?for=8h", time.Hour, &shorter); code != http.StatusCreated ||
			!shorter.Until.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("with a certificate for an hour: %d, %+v", code, shorter)
		}
		var told edge.PageLinks
		if code := issues(t, i, http.MethodGet, "", time.Hour, &told); code != http.StatusOK || len(told.Links) != 2 {
			t.Errorf("%d, %+v", code, told)
		}
		var refused struct{ Message string }
		for query, want := range map[string]int{
			"": http.StatusBadRequest, "?for=long": http.StatusBadRequest, "?for=0s": http.StatusBadRequest,
			"?for=25h": http.StatusBadRequest,
		} {
			if code := issues(t, i, http.MethodPost, query, 48*time.Hour, &refused); code != want || refused.Message == "" {
				t.Errorf("%q: %d %q, want %d", query, code, refused.Message, want)
			}
		}
		if code := issues(t, i, http.MethodPost, "?for=1h", 0, &refused); code != http.StatusForbidden {
			t.Errorf("without a certificate: %d %q", code, refused.Message)
		}
		fails = errors.New("the port is taken")
		if code := issues(t, i, http.MethodPost, "?for=1h", time.Hour, &refused); code != http.StatusServiceUnavailable ||
			!strings.Contains(refused.Message, "the port is taken") || len(i.Links.Live()) != 2 {
			t.Errorf("%d %q; %+v live", code, refused.Message, i.Links.Live())
		}
		if code := issues(t, i, http.MethodDelete, "", time.Hour, &told); code != http.StatusOK || len(told.Links) != 2 ||
			len(i.Links.Live()) != 0 {
			t.Errorf("%d, %+v withdrawn, %+v live", code, told, i.Links.Live())
		}
	})
}
