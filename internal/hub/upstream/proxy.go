package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// maxProxyFile bounds what is read of WaySettings.File, in bytes.
const maxProxyFile = 4 << 10

// WaySettings say through which proxy the hub reaches the cloud. The hub reads the files and the environment again for each
// connection.
type WaySettings struct {
	// File is a file with the URL of an HTTP, HTTPS or SOCKS5 proxy, with user and password if the proxy wants them. Empty
	// means that the environment decides: HTTPS_PROXY and NO_PROXY.
	File string
	// Except are hosts that the hub reaches without the proxy in File, in the form of NO_PROXY.
	Except string
	// CAFile is a PEM file with authorities that may sign an HTTPS proxy's certificate, besides the system's; empty means none.
	CAFile string
	// Direct says that there is no proxy, whatever the environment says.
	Direct bool
}

// errOpenToAll says why the hub does not use a proxy file with a password.
var errOpenToAll = errors.New("others than its owner can read it: chmod 600")

// For returns the proxy through which the hub reaches a server, HOST:PORT; nil means no proxy.
func (s WaySettings) For(server string) (*url.URL, error) {
	if s.Direct {
		return nil, nil //nolint:nilnil // no proxy, as http.Transport.Proxy says it
	}
	choice := httpproxy.FromEnvironment()
	from := "HTTPS_PROXY"
	if s.File != "" {
		text, err := readProxy(s.File)
		if err != nil {
			return nil, fmt.Errorf("proxy file %s: %w", s.File, err)
		}
		choice, from = &httpproxy.Config{HTTPSProxy: text, NoProxy: s.Except}, s.File
	}
	if choice.HTTPSProxy == "" {
		return nil, nil //nolint:nilnil // no proxy, as http.Transport.Proxy says it
	}
	if _, err := ParseWay(choice.HTTPSProxy); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if s.File != "" && s.Except == "" {
		return ParseWay(choice.HTTPSProxy) // also to the loopback, as a kubeconfig's proxy-url is
	}
	return choice.ProxyFunc()(&url.URL{Scheme: "https", Host: server})
}

// readProxy returns the URL in a file.
func readProxy(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", errors.Unwrap(err)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxProxyFile+1))
	if err != nil {
		return "", errors.Unwrap(err)
	}
	text := strings.TrimSpace(string(content))
	if len(content) > maxProxyFile || text == "" {
		return "", fmt.Errorf("it has %d bytes, want the URL of a proxy", len(content))
	}
	if info.Mode().Perm()&0o077 != 0 && strings.Contains(text, "@") {
		return "", errOpenToAll
	}
	return text, nil
}

// ports are the ports of proxies whose URLs name none, by scheme.
var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// ParseWay parses the URL of a proxy. Its errors do not quote the URL, because it may contain a password.
func ParseWay(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text // as curl and Go take it
	}
	u, err := url.Parse(text)
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return nil, errors.New("want the URL of a proxy: http, https or socks5://[USER:PASSWORD@]HOST[:PORT]")
	}
	return u, nil
}

// address returns a proxy's HOST:PORT.
func address(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = ports[proxy.Scheme]
	}
	return net.JoinHostPort(proxy.Hostname(), port)
}

// ProxyError says that a server cannot be reached because of the proxy.
type ProxyError struct {
	// Proxy is its URL without user and password.
	Proxy string
	// Kind says what fails.
	Kind ProxyKind
	Err  error
}

// ProxyKind says what fails.
type ProxyKind string

// The kinds of a ProxyError.
const (
	// Unusable means that the settings name no usable proxy.
	Unusable ProxyKind = "no usable proxy is named"
	// Unreached means that the proxy does not accept the connection.
	Unreached ProxyKind = "it cannot be reached"
	// Denied means that the proxy wants another user or password, or does not allow this server.
	Denied ProxyKind = "it refuses"
	// Stuck means that the proxy does not reach the server.
	Stuck ProxyKind = "it does not reach the server"
)

// Error names the proxy, and never its password.
func (e *ProxyError) Error() string {
	if e.Proxy == "" {
		return fmt.Sprintf("proxy: %s: %v", e.Kind, e.Err)
	}
	return fmt.Sprintf("proxy %s: %s: %v", e.Proxy, e.Kind, e.Err)
}

// Unwrap returns what was met.
func (e *ProxyError) Unwrap() error { return e.Err }

// shown returns a proxy's URL without user and password.
func shown(proxy *url.URL) string {
	without := *proxy
	without.User = nil
	return without.String()
}
