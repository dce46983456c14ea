package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/hubtest"
)

const user, password = hubtest.ProxyUser, hubtest.ProxyPassword

// greeter is a server that speaks first: a tunnel that swallows what comes right after the proxy's answer would lose it.
func greeter(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, "hello")
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// file writes a proxy's URL to a file that only its owner reads.
func file(t *testing.T, content string) WaySettings {
	return WaySettings{File: hubtest.ProxyFile(t, content)}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// echoes sees that a connection carries bytes in both directions.
func echoes(t *testing.T, c net.Conn) {
	t.Helper()
	defer c.Close()
	lines := bufio.NewReader(c)
	if got, err := lines.ReadString('\n'); got != "hello\n" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
	if _, err := fmt.Fprintln(c, "and back"); err != nil {
		t.Error(err)
	}
	if got, err := lines.ReadString('\n'); got != "and back\n" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
	if err := c.(interface{ SetLinger(sec int) error }).SetLinger(0); err != nil {
		t.Errorf("it cannot be reset: %v", err)
	}
}

func TestThroughAnHTTPProxy(t *testing.T) {
	s := hubtest.StartProxy(t)
	server := greeter(t)
	w := NewWay(WayConfig{Proxy: file(t, s.Address(password))})
	conn, err := w.DialContext(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn)
	if asked := s.Asked(); !slices.Equal(asked, []string{server}) {
		t.Errorf("the proxy was asked for %s, want %s", asked, server)
	}
}

func TestThroughAnHTTPSProxy(t *testing.T) {
	s := hubtest.NewProxy(t)
	s.StartTLS()
	settings := file(t, s.Address(password))
	w := NewWay(WayConfig{Proxy: settings})
	var failed *ProxyError
	if _, err := w.DialContext(t.Context(), "tcp", greeter(t)); !errors.As(err, &failed) || failed.Kind != Unreached {
		t.Errorf("a proxy whose authority is not known: %v", err)
	}
	settings.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(settings.CAFile, block, 0o644); err != nil {
		t.Fatal(err)
	}
	conn, err := NewWay(WayConfig{Proxy: settings}).DialContext(t.Context(), "tcp", greeter(t))
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn)
}

// socksProxy is a SOCKS5 proxy (RFC 1928) that knows one user.
func socksProxy(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	serve := func(c net.Conn) error {
		defer c.Close()
		b := make([]byte, 512)
		read := func(n int) []byte { _, err = io.ReadFull(c, b[:n]); return b[:n] }
		read(int(read(2)[1])) // the ways to authenticate
		_, _ = c.Write([]byte{5, 2})
		who := string(read(int(read(2)[1])))
		secret := string(read(int(read(1)[0])))
		if who != user || secret != password {
			_, err := c.Write([]byte{1, 1})
			return err
		}
		_, _ = c.Write([]byte{1, 0})
		kind := read(4)[3]
		host := ""
		switch kind {
		case 1:
			host = netip.AddrFrom4([4]byte(read(4))).String()
		case 3:
			host = string(read(int(read(1)[0])))
		}
		port := read(2)
		if host == hubtest.ForbiddenHost {
			_, err := c.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
			return err
		}
		far, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port[0])<<8|int(port[1]))))
		if err != nil {
			_, err := c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
			return err
		}
		_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		go func() { _, _ = io.Copy(far, c); _ = far.Close() }()
		_, err = io.Copy(c, far)
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = serve(c) }()
		}
	}()
	return l.Addr().String()
}

func TestThroughASOCKSProxy(t *testing.T) {
	at := socksProxy(t)
	w := NewWay(WayConfig{Proxy: file(t, "socks5://"+user+":"+password+"@"+at)})
	conn, err := w.DialContext(within(t, time.Minute), "tcp", greeter(t))
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, conn)
}

// TestProxyFails: who reads the error knows that it is the proxy, and what is wrong with it, and learns no password.
func TestProxyFails(t *testing.T) {
	s := hubtest.StartProxy(t)
	at := s.Listener.Addr().String()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	socks := socksProxy(t)
	for name, tt := range map[string]struct {
		proxy, server string
		want          ProxyKind
		says          string
	}{
		"nobody there": {"http://" + user + ":" + password + "@" + gone.Addr().String(), "cloud.example:6443",
			Unreached, "refused"},
		"other password":     {"http://" + user + ":wrong-" + password + "@" + at, "cloud.example:6443", Denied, "407"},
		"no user":            {"http://" + at, "cloud.example:6443", Denied, "407"},
		"server not allowed": {"http://" + user + ":" + password + "@" + at, hubtest.ForbiddenHost + ":6443", Denied, "403"},
		"server not reached": {"http://" + user + ":" + password + "@" + at, gone.Addr().String(), Stuck, "502"},
		"no proxy": {"http://" + user + ":" + password + "@" + other.Listener.Addr().String(),
			"cloud.example:6443", Denied, "404"},
		"silent": {"http://" + user + ":" + password + "@" + silent.Addr().String(), "cloud.example:6443",
			Stuck, "it has not answered"},
		"SOCKS: password": {"socks5://" + user + ":wrong-" + password + "@" + socks, "cloud.example:6443", Denied,
			"authentication"},
		"SOCKS: not allowed": {"socks5://" + user + ":" + password + "@" + socks, hubtest.ForbiddenHost + ":6443", Denied,
			"not allowed"},
		"SOCKS: not reached": {"socks5h://" + user + ":" + password + "@" + socks, gone.Addr().String(), Stuck, "refused"},
		"no TLS":             {"https://" + user + ":" + password + "@" + at, "cloud.example:6443", Unreached, "TLS"},
		"other scheme": {"ftp://" + user + ":" + password + "@" + at, "cloud.example:6443", Unusable,
			"want the URL of a proxy"},
		"no URL": {"http://" + user + ":" + password + "@%zz", "cloud.example:6443", Unusable,
			"want the URL of a proxy"},
		"an empty file": {" \n", "cloud.example:6443", Unusable, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			patient := time.Minute
			if name == "silent" {
				patient = 50 * time.Millisecond // it ends in any case
			}
			_, err := NewWay(WayConfig{Proxy: file(t, tt.proxy)}).DialContext(within(t, patient), "tcp", tt.server)
			var failed *ProxyError
			if !errors.As(err, &failed) || failed.Kind != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v; want one of the kind %q that says %q", err, tt.want, tt.says)
			}
			if strings.Contains(fmt.Sprint(err), password) || strings.Contains(fmt.Sprint(err), user+":") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

func TestWhichProxy(t *testing.T) {
	for name, tt := range map[string]struct {
		file, except      string
		environment, none string
		server            string
		want              string // "" means no proxy
	}{
		"nothing said":              {server: "cloud.example:6443"},
		"the environment":           {environment: "http://p:3128", server: "cloud.example:6443", want: "http://p:3128"},
		"the environment, excepted": {environment: "http://p:3128", none: "10.0.0.0/8,.example", server: "cloud.example:6443"},
		"an excepted network":       {environment: "http://p:3128", none: "10.0.0.0/8", server: "10.1.2.3:6443"},
		"a file before the environment": {file: "socks5://q:1080", environment: "http://p:3128", none: ".example",
			server: "cloud.example:6443", want: "socks5://q:1080"},
		"a file, excepted": {file: "http://q:3128", except: "cloud.example", server: "cloud.example:6443"},
		"a file, another excepted": {file: "http://q:3128", except: "other.example", server: "cloud.example:6443",
			want: "http://q:3128"},
		"a file without scheme":    {file: "q:3128", server: "cloud.example:6443", want: "http://q:3128"},
		"the environment, without": {environment: "p:3128", server: "cloud.example:6443", want: "http://p:3128"},
		"IPv6":                     {environment: "http://[fd00::1]:3128", none: "fd00:2::/32", server: "[fd00:2::1]:6443"},
		"IPv6 through an IPv6 proxy": {environment: "http://[fd00::1]:3128", server: "[fd00:2::1]:6443",
			want: "http://[fd00::1]:3128"},
		"a file, to this machine too": {file: "http://q:3128", server: "127.0.0.1:6443", want: "http://q:3128"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"HTTPS_PROXY", "https_proxy"} {
				t.Setenv(v, tt.environment)
			}
			for _, v := range []string{"NO_PROXY", "no_proxy"} {
				t.Setenv(v, tt.none)
			}
			s := WaySettings{Except: tt.except}
			if tt.file != "" {
				s = file(t, tt.file)
				s.Except = tt.except
			}
			proxy, err := s.For(tt.server)
			got := ""
			if proxy != nil {
				got = proxy.String()
			}
			if got != tt.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestPasswordThatOthersCanRead(t *testing.T) {
	s := file(t, "http://"+user+":"+password+"@proxy:3128")
	if _, err := s.For("cloud.example:6443"); err != nil {
		t.Errorf("a file that only its owner reads: %v", err)
	}
	if err := os.Chmod(s.File, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.For("cloud.example:6443"); !errors.Is(err, errOpenToAll) {
		t.Errorf("a password that all can read: %v", err)
	}
	if err := os.WriteFile(s.File, []byte("http://proxy:3128"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.For("cloud.example:6443"); err != nil {
		t.Errorf("without a password there is nothing to hide: %v", err)
	}
}

// TestTLSInsideATunnel: what the hub speaks with the cloud goes end to end.
func TestTLSInsideATunnel(t *testing.T) {
	cloud := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "ok")
	}))
	defer cloud.Close()
	s := hubtest.StartProxy(t)
	w := NewWay(WayConfig{Proxy: file(t, s.Address(password))})
	conn, err := w.DialContext(t.Context(), "tcp", cloud.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	config := cloud.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	secured := tls.Client(conn, config)
	if err := errors.Join(secured.HandshakeContext(t.Context()), secured.Close()); err != nil {
		t.Error(err)
	}
}
