package converter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestConverts(t *testing.T) {
	const asked = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u",` +
		`"desiredAPIVersion":"g/v1","objects":[{"apiVersion":"g/v1alpha1","kind":"Widget","spec":{"size":1}}]},` +
		`"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}` // as an API server sends it
	const want = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u",` +
		`"convertedObjects":[{"apiVersion":"g/v1","kind":"Widget","spec":{"size":1}}],"result":{"status":"Success"}}}`
	c := &converter{}
	for body, code := range map[string]int{asked: http.StatusOK, "{}": http.StatusBadRequest} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if w.Code != code || code == http.StatusOK && strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
	if n := c.converted.Load(); n != 1 {
		t.Errorf("it has converted %d objects, want 1", n)
	}
}
