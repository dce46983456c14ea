package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/proxy"
)

// maxReply bounds the header of a proxy's answer, in bytes.
const maxReply = 16 << 10

// through opens a connection to a server through a proxy.
func (w *Way) through(ctx context.Context, by *url.URL, server string) (net.Conn, error) {
	fail := func(kind ProxyKind, err error) (net.Conn, error) {
		return nil, &ProxyError{Proxy: shown(by), Kind: kind, Err: err}
	}
	raw, err := w.direct(ctx, "tcp", address(by))
	if err != nil {
		return fail(Unreached, err)
	}
	conn := raw
	if by.Scheme == "https" {
		if conn, err = w.secure(ctx, raw, by.Hostname()); err != nil {
			_ = raw.Close()
			return fail(Unreached, err)
		}
	}
	// The proxy may be silent: an end of ctx ends the waiting.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	var kind ProxyKind
	if strings.HasPrefix(by.Scheme, "socks5") {
		kind, err = socks(ctx, conn, by, server)
	} else {
		conn, kind, err = connectThrough(conn, by, server)
	}
	if !stop() && err == nil {
		kind, err = Stuck, context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			kind, err = Stuck, fmt.Errorf("it has not answered for %s: %w", server, context.Cause(ctx))
		}
		return fail(kind, err)
	}
	if conn == raw {
		return raw, nil
	}
	return tunnel{Conn: conn, raw: raw}, nil
}

// secure speaks TLS with an HTTPS proxy.
func (w *Way) secure(ctx context.Context, raw net.Conn, name string) (net.Conn, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's authorities: %w", err)
	}
	if path := w.cfg.Proxy.CAFile; path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("proxy's authorities: %w", err)
		}
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("proxy's authorities: there is no certificate in PEM form in %s", path)
		}
	}
	conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: name})
	return conn, conn.HandshakeContext(ctx)
}

// connectThrough asks an HTTP proxy for a tunnel.
func connectThrough(conn net.Conn, by *url.URL, server string) (net.Conn, ProxyKind, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: server}, Host: server, Header: http.Header{
		"User-Agent": {"yurthub"},
	}}
	if by.User != nil {
		password, _ := by.User.Password()
		request.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(by.User.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return nil, Unreached, err
	}
	// Read no further than the header: what follows is the server's.
	header, err := readHeader(conn)
	if err != nil {
		return nil, Stuck, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(header)), request)
	if err != nil {
		return nil, Unreached, errors.New("it does not speak HTTP")
	}
	_ = answer.Body.Close() // there is none in what was read
	switch code := answer.StatusCode; {
	case code == http.StatusOK:
		return conn, "", nil
	case code == http.StatusProxyAuthRequired:
		return nil, Denied, fmt.Errorf("it answers %s: see its user and password", answer.Status)
	case code < http.StatusInternalServerError:
		return nil, Denied, fmt.Errorf("it answers %s for %s", answer.Status, server)
	}
	return nil, Stuck, fmt.Errorf("it answers %s for %s", answer.Status, server)
}

// readHeader reads up to and including the empty line.
func readHeader(conn net.Conn) (string, error) {
	var header strings.Builder
	for one := make([]byte, 1); header.Len() < maxReply; {
		if _, err := conn.Read(one); err != nil {
			return "", err
		}
		header.WriteByte(one[0])
		if one[0] == '\n' && (strings.HasSuffix(header.String(), "\r\n\r\n") || strings.HasSuffix(header.String(), "\n\n")) {
			return header.String(), nil
		}
	}
	return "", fmt.Errorf("its answer is longer than %d bytes", maxReply)
}

// socks asks a SOCKS5 proxy for a tunnel. The proxy looks the server's name up.
func socks(ctx context.Context, conn net.Conn, by *url.URL, server string) (ProxyKind, error) {
	var who *proxy.Auth
	if by.User != nil {
		password, _ := by.User.Password()
		who = &proxy.Auth{User: by.User.Username(), Password: password}
	}
	asker, err := proxy.SOCKS5("tcp", address(by), who, opened{conn})
	if err != nil {
		return Unusable, err
	}
	bounded, ok := asker.(proxy.ContextDialer)
	if !ok {
		return Unusable, errors.New("SOCKS5 without a time limit")
	}
	_, err = bounded.DialContext(ctx, "tcp", server)
	switch {
	case err == nil:
		return "", nil
	case strings.Contains(err.Error(), "authentication") || strings.Contains(err.Error(), "not allowed"):
		return Denied, err // its errors have no types
	}
	return Stuck, err
}

// opened is a dialer that has dialled already.
type opened struct{ conn net.Conn }

// Dial implements proxy.Dialer.
func (o opened) Dial(string, string) (net.Conn, error) { return o.conn, nil }

// DialContext implements proxy.ContextDialer.
func (o opened) DialContext(context.Context, string, string) (net.Conn, error) { return o.conn, nil }

// tunnel is a connection to a server inside the connection to a proxy.
type tunnel struct {
	net.Conn
	raw net.Conn
}

// SetLinger makes Close reset the connection to the proxy, so that the kernel drops unsent bytes.
func (t tunnel) SetLinger(seconds int) error {
	if c, ok := t.raw.(interface{ SetLinger(sec int) error }); ok {
		return c.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// Close closes the connection to the proxy. It sends no TLS close_notify, which could wait for a dead link.
func (t tunnel) Close() error { return t.raw.Close() }
