package instead

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestWriter(t *testing.T) {
	for _, c := range []struct {
		status       int
		unauthorized bool
		elsewhere    bool
		can          bool // give another answer
		want         int
	}{
		{http.StatusOK, false, false, true, 200},
		{http.StatusNotFound, false, false, true, 404},
		{http.StatusInternalServerError, false, false, true, 500},
		{http.StatusBadGateway, false, false, true, 299},
		{http.StatusServiceUnavailable, false, false, true, 299},
		{http.StatusGatewayTimeout, false, false, true, 299},
		{http.StatusServiceUnavailable, false, false, false, 503},
		{http.StatusServiceUnavailable, false, true, true, 503},
		{http.StatusUnauthorized, true, true, true, 299},
		{http.StatusUnauthorized, false, false, true, 401},
		{http.StatusUnauthorized, true, false, true, 299},
		{http.StatusUnauthorized, true, false, false, 401},
	} {
		out := httptest.NewRecorder()
		another := func(w http.ResponseWriter) bool {
			if !c.can {
				return false
			}
			w.Header().Set("From", "another")
			w.WriteHeader(299)
			_, _ = w.Write([]byte("another"))
			return true
		}
		w := &Writer{ResponseWriter: out, Unauthorized: c.unauthorized, Elsewhere: c.elsewhere, Answer: another}
		w.Header().Set("From", "the server")
		w.WriteHeader(c.status)
		if n, err := w.Write([]byte("the server")); n != 10 || err != nil {
			t.Errorf("%d: wrote %d, %v", c.status, n, err)
		}
		who := "the server"
		if c.want == 299 {
			who = "another"
		}
		if out.Code != c.want || out.Body.String() != who || out.Header().Get("From") != who {
			t.Errorf("%d: %d %q from %q, want %d from %s", c.status, out.Code, out.Body, out.Header().Get("From"), c.want, who)
		}
	}
}
