package prowl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestLure: a stranger who takes a port learns what is said to whoever is there, and nothing from those who look first.
func TestLure(t *testing.T) {
	pair, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	own, other := x509.NewCertPool(), x509.NewCertPool()
	own.AddCert(leaf)
	for name, tt := range map[string]struct {
		say     func(net.Conn)
		trusted bool
		said    string
	}{
		"who speaks in the clear": {func(c net.Conn) {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\nAuthorization: t\r\n\r\n"))
		}, false, "GET / HTTP/1.1\r\nAuthorization: t\r\n\r\n"},
		"who looks first": {func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{RootCAs: other, ServerName: "localhost"}).HandshakeContext(t.Context())
		}, false, ""},
		"who trusts it": {func(c net.Conn) {
			_, _ = tls.Client(c, &tls.Config{RootCAs: own, ServerName: "localhost"}).Write([]byte("token"))
		}, true, "token"},
	} {
		near, far := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			tt.say(far)
			far.Close()
		}()
		trusted, said := lure(t.Context(), near, pair)
		near.Close()
		<-done
		if trusted != tt.trusted || said != tt.said {
			t.Errorf("%s: trusted %v, said %q", name, trusted, said)
		}
	}
}

func TestAsk(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "other" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	there := filepath.Join(t.TempDir(), "none")
	var report Report
	err := ask(t.Context(), Order{
		Ask:  []Request{{Method: "GET", URL: server.URL}, {Method: "PUT", URL: server.URL, Host: "other"}},
		Read: []string{there, "/proc/self/stat"},
	}, &report)
	if err != nil || len(report.Codes) != 2 || report.Codes[0] != 200 || report.Codes[1] != http.StatusTeapot ||
		!strings.Contains(report.Errors[0], there) || report.Errors[1] != "" {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestCrowd: whoever is in the way comes back when he is sent away, from the address that he was told.
func TestCrowd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Report)
	go func() {
		var report Report
		crowd := Crowd{At: []string{listener.Addr().String()}, From: []string{"127.0.0.66"}, Each: 3}
		if err := crowd.stand(ctx, &report); err != nil {
			t.Error(err)
		}
		done <- report
	}()
	for i := range 6 { // the first three are sent away
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if from := conn.RemoteAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.66" {
			t.Errorf("somebody comes from %s", from)
		}
		if i < 3 {
			conn.Close()
		} else {
			defer conn.Close()
		}
	}
	cancel()
	// The last three may not have noticed that they are in.
	if report := <-done; report.Ended < 3 || report.Opened < report.Ended {
		t.Errorf("the report is %+v", report)
	}
}
