package kit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFetchWants200(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte("word"))
	}))
	defer server.Close()
	if body, err := Fetch(t.Context(), server.Client(), server.URL); body != "word" || err != nil {
		t.Error(body, err)
	}
	code = http.StatusTooManyRequests
	if _, err := Fetch(t.Context(), server.Client(), server.URL); err == nil || !strings.Contains(err.Error(), "429") {
		t.Error("429 is taken for an answer:", err)
	}
}
