package connect

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestProxy: who knows the password gets through, and the report says where to.
func TestProxy(t *testing.T) {
	cloud := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer cloud.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	_ = free.Close()
	in, orders := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Main(t.Context(), Order{Listen: at, User: "edge", Password: "secret"}, in, out) }()
	lines := bufio.NewReader(said)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	get := func(as string) (string, error) {
		transport := cloud.Client().Transport.(*http.Transport).Clone()
		transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://" + as + at) }
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Get(cloud.URL)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
	if text, err := get("edge:secret@"); text != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for _, as := range []string{"", "edge:other@"} {
		if text, err := get(as); err == nil {
			t.Errorf("as %q: %q", as, text)
		}
	}
	go func() { _ = orders.Close() }()
	var report Report
	if err := json.NewDecoder(lines).Decode(&report); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{cloud.Listener.Addr().String(): 1}; fmt.Sprint(report.Asked) != fmt.Sprint(want) ||
		report.Refused != 2 {
		t.Errorf("%+v, want %v and 2 refused", report, want)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
