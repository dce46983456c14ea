package front

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
)

func TestOwnedTranslatesOptions(t *testing.T) {
	info := &request.RequestInfo{IsResourceRequest: true, Resource: "pods"}
	for query, want := range map[string]string{
		"watch=1&resourceVersion=" + edge.Shown(100, 1<<31).String(): "resourceVersion=100&watch=1",
		"watch=1&resourceVersion=100":                                "watch=1&resourceVersion=100",
		"resourceVersion=":                                           "resourceVersion=",
		"resourceVersion=nonsense":                                   "resourceVersion=nonsense",
		"a=%zz&resourceVersion=1":                                    "a=%zz&resourceVersion=1",
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/endpoints", nil)
		r.URL.RawQuery = query
		if s := owned(r, info); s != nil || r.URL.RawQuery != want {
			t.Errorf("%q became %q, want %q (%v)", query, r.URL.RawQuery, want, s)
		}
	}
}

func TestOwnedRefusesWritesOfACut(t *testing.T) {
	shown := edge.Shown(100, 1<<31).String()
	info := &request.RequestInfo{IsResourceRequest: true, Resource: "endpointslices", APIGroup: "discovery.k8s.io", Name: "web-1"}
	for body, refused := range map[string]bool{
		`{"metadata":{"resourceVersion":"` + shown + `"}}`:                           true,
		"metadata:\n  resourceVersion: " + shown:                                     true,
		`[{"op":"test","path":"/metadata/resourceVersion","value":"` + shown + `"}]`: true,
		"k8s\x00\x32\x13" + shown + "\x3a":                                           true,
		`{"metadata":{"resourceVersion":"100"}}`:                                     false,
		`{"metadata":{"annotations":{"at":"1764000000000000000"}}}`:                  false,
		`{"n":"` + shown + `0"}`:                                                     false,
		"":                                                                           false,
	} {
		r := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(body))
		s := owned(r, info)
		if (s != nil) != refused || s != nil && s.Code != http.StatusConflict {
			t.Errorf("%q: %v", body, s)
		}
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
			t.Errorf("%q was passed on as %q, %v", body, got, err)
		}
	}
	broken := errors.New("broken")
	r := httptest.NewRequest(http.MethodPut, "/", io.MultiReader(strings.NewReader("{"), failed{broken}))
	if s := owned(r, info); s != nil {
		t.Error(s)
	}
	if got, err := io.ReadAll(r.Body); !errors.Is(err, broken) || string(got) != "{" {
		t.Errorf("a body that breaks is %q, %v", got, err)
	}
	other := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(shown))
	if s := owned(other, &request.RequestInfo{IsResourceRequest: true, Resource: "pods"}); s != nil {
		t.Errorf("a Pod: %v", s)
	}
}
