package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestOtherSitesAreRefused(t *testing.T) {
	h := FromHere(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for name, c := range map[string]struct {
		origin []string
		want   int
	}{
		"a program":                       {nil, http.StatusNoContent},
		"the coordinator's own page":      {[]string{"https://192.0.2.1:10270"}, http.StatusNoContent},
		"another site":                    {[]string{"https://example.com"}, http.StatusForbidden},
		"another port of the same host":   {[]string{"https://192.0.2.1:8443"}, http.StatusForbidden},
		"without TLS":                     {[]string{"http://192.0.2.1:10270"}, http.StatusForbidden},
		"a page that hides where it's of": {[]string{"null"}, http.StatusForbidden},
		"an empty one":                    {[]string{""}, http.StatusForbidden},
		"two":                             {[]string{"https://192.0.2.1:10270", "https://example.com"}, http.StatusForbidden},
		"a name that begins alike":        {[]string{"https://192.0.2.1:10270.example.com"}, http.StatusForbidden},
		"a user in it":                    {[]string{"https://192.0.2.1:10270@example.com"}, http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "https://192.0.2.1:10270/api/v1/namespaces/shop/pods/till/exec", nil)
		if c.origin != nil {
			r.Header["Origin"] = c.origin
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
	}
}
