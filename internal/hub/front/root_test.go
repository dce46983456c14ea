package front

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// Who asks is told by the kernel, of a connection from this host.
func TestWhoIsRoot(t *testing.T) {
	asked := make(chan bool, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- OfRoot(r) }))
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if is := <-asked; is != (os.Getuid() == 0) {
		t.Errorf("a request by user %d is taken for root's: %t", os.Getuid(), is)
	}
	if OfRoot(httptest.NewRequest(http.MethodGet, "/status", nil)) {
		t.Error("so is one that came by no connection of this host")
	}
}
