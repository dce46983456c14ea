package openapi

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func ask(t *testing.T, method, target string, header map[string]string) *http.Response {
	t.Helper()
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func TestHandler(t *testing.T) {
	const core = Root + "/api/v1"
	tests := []struct {
		name, method, target string
		header               map[string]string
		code                 int
		has                  string
	}{
		{"the list", "GET", Root, nil, 200, `"apis/discovery.k8s.io/v1":{"serverRelativeURL":"` + Root + "/apis/discovery"},
		{"the list, by its directory", "GET", Root + "/", nil, 200, `"api/v1"`},
		{"a document", "GET", core, nil, 200, `"io.k8s.api.core.v1.PodSpec"`},
		{"whatever the kind", "GET", core, map[string]string{"Accept": "*/*"}, 200, `"paths"`},
		{"JSON rather than Protobuf", "GET", core, map[string]string{
			"Accept": "application/com.github.proto-openapi.spec.v3@v1.0+protobuf, application/json"}, 200, `"paths"`},
		{"Protobuf", "GET", core, map[string]string{
			"Accept": "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"}, 406, "application/json only"},
		{"no such group", "GET", Root + "/apis/apps/v1", nil, 404, "not found"},
		{"not a document's name", "GET", Root + "/api__v1", nil, 404, "not found"},
		{"a write", "POST", core, nil, 405, "only be read"},
		{"its head", "HEAD", Root, nil, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer := ask(t, tt.method, tt.target, tt.header)
			if got := text(t, answer.Body); answer.StatusCode != tt.code || !strings.Contains(got, tt.has) {
				t.Errorf("%d, %.200s; want %d and %q", answer.StatusCode, got, tt.code, tt.has)
			}
		})
	}
}

func TestPackedAndPlainAreTheSame(t *testing.T) {
	plain := ask(t, "GET", Root+"/apis/coordination.k8s.io/v1", nil)
	packed := ask(t, "GET", Root+"/apis/coordination.k8s.io/v1", map[string]string{"Accept-Encoding": "br, gzip"})
	if got := packed.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding %q", got)
	}
	unpacked, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text(t, unpacked) != text(t, plain.Body) {
		t.Error("the packed document is another")
	}
	if a, b := plain.Header.Get("ETag"), packed.Header.Get("ETag"); a == "" || a != b {
		t.Errorf("ETags %q, %q", a, b)
	}
}

// TestAClientKeepsADocument: by the list it knows each document's state, and asks for no state twice.
func TestAClientKeepsADocument(t *testing.T) {
	var list struct{ Paths map[string]indexed }
	if err := json.NewDecoder(ask(t, "GET", Root, nil).Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	address := list.Paths["api/v1"].ServerRelativeURL
	first := ask(t, "GET", address, nil)
	if got := first.Header.Get("Cache-Control"); first.StatusCode != http.StatusOK || got != forever {
		t.Errorf("%s: %d, Cache-Control %q", address, first.StatusCode, got)
	}
	if got := ask(t, "GET", Root+"/api/v1?hash=0", nil).Header.Get("Cache-Control"); got != "" {
		t.Errorf("of an older state: Cache-Control %q", got)
	}
	tag := map[string]string{"If-None-Match": first.Header.Get("ETag"), "Accept-Encoding": "gzip"}
	if again := ask(t, "GET", address, tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("asked with its ETag: %d", again.StatusCode)
	}
}
