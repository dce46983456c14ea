package pool

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"yurtcoordinator/internal/pool/pooltest"
)

// ask returns the code of an answer.
func (c *coordinator) ask(t testing.TB, client *http.Client, method, path string, header map[string]string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+c.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// opens asks for a stream over a WebSocket, as a page of origin would if there is one, and returns the code of the answer.
func (c *coordinator) opens(t testing.TB, shown tls.Certificate, path string, origin []string) int {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: c.tls(shown),
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}, // HTTP/1.1, as WebSockets are
		Timeout: 30 * time.Second,
	}
	defer client.CloseIdleConnections()
	header := map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key":      "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol": "v5.channel.k8s.io",
	}
	for _, o := range origin {
		header["Origin"] = o
	}
	return c.ask(t, client, http.MethodGet, path, header)
}

// TestOtherSitesOpenNoStreams: a browser that has an operator's certificate shows it for any page that opens a WebSocket, and
// exec is one.
func TestOtherSitesOpenNoStreams(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "till", 10)))
	shown := c.certificate(t, pooltest.Operator())
	opens := func(origin ...string) int {
		return c.opens(t, shown, "/api/v1/namespaces/shop/pods/till/exec?command=sh&stdout=true", origin)
	}
	for _, origin := range []string{"https://example.com", "null", "http://" + c.address} {
		if code := opens(origin); code != http.StatusForbidden {
			t.Errorf("a page of %s opens a stream: %d", origin, code)
		}
	}
	for _, origin := range [][]string{nil, {"https://" + c.address}} {
		if code := opens(origin...); code == http.StatusForbidden {
			t.Errorf("from %q: %d, though kubectl asks so", origin, code)
		}
	}
	foreign := map[string]string{"Origin": "https://example.com"}
	if code := c.ask(t, c.http(t, shown), http.MethodGet, "/api/v1/pods", foreign); code != http.StatusForbidden {
		t.Errorf("a page of another site reads Pods: %d", code)
	}
	c.audited(t, "such a page", refused(403, "alice", "list", "/api/v1/pods", "asks this coordinator by way of your browser"))
}
