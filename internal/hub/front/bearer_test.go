package front

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// accepting are the tokens that a cloud accepts; it notes what it was asked with.
type accepting struct {
	good  []string
	asked []string
}

func (a *accepting) RoundTrip(r *http.Request) (*http.Response, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.asked = append(a.asked, token)
	code := http.StatusUnauthorized
	if slices.Contains(a.good, token) {
		code = http.StatusOK
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func TestBearer(t *testing.T) {
	cloud := &accepting{good: []string{"old"}}
	all := newBearers(cloud)
	b := all.of("coredns")
	ask := func(wantCode int, wantAsked ...string) {
		t.Helper()
		cloud.asked = nil
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cloud/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := b.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != wantCode || !slices.Equal(cloud.asked, wantAsked) {
			t.Errorf("%d after asking with %q, want %d after %q", response.StatusCode, cloud.asked, wantCode, wantAsked)
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("the request was changed")
		}
	}
	ask(401, "") // nobody has shown a token yet
	b.add("old")
	ask(200, "old")
	b.add("bad")
	b.add("bad")
	ask(200, "bad", "old")
	ask(200, "old") // what was refused is not tried again
	cloud.good = []string{"new"}
	ask(401, "old")
	ask(401, "old") // the last one stays
	all.of("coredns").add("new")
	ask(200, "new")
	all.of("another").add("other")
	ask(200, "new")
	for i := range 2 * maxTokens {
		b.add(fmt.Sprint(i))
	}
	if n := len(b.all()); n != maxTokens {
		t.Errorf("%d tokens are kept, want %d", n, maxTokens)
	}
}
