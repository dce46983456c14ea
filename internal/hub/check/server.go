package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/upstream"
)

// probeServer goes towards a server of the cloud step by step, until one fails: the hub's way, so through its proxy.
func probeServer(ctx context.Context, c Config, held identity.Held, address string) Server {
	s := Server{Address: address}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		s.stop("give https://HOST:PORT", "%q is not an address", address)
		return s
	}
	w := walk{
		Config: c, server: &s, url: u, held: held, way: upstream.NewWay(upstream.WayConfig{Proxy: c.Proxy()}),
		host: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")),
	}
	if s.Proxy, err = w.way.Proxy(w.host); err != nil {
		s.stop("correct --proxy-file, or HTTPS_PROXY",
			"the way to %s leads through a proxy, and what is said of that is of no use: %s", address, cause(err))
		return s
	}
	status, body := w.get(ctx, "/readyz")
	switch {
	case s.Why != "":
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		s.stop("see the API server's log", "%s answers, but is not ready: status %d: %s", address, status, failing(string(body)))
	case held.Pair != nil: // without a certificate there is nobody to recognize
		w.node(ctx)
	}
	return s
}

// stop says why the node can't use the server.
func (s *Server) stop(do, why string, args ...any) { s.Why, s.Do = fmt.Sprintf(why, args...), do }

// walk is one way to a server.
type walk struct {
	Config
	held   identity.Held
	server *Server
	way    *upstream.Way
	url    *url.URL
	host   string // HOST:PORT
}

// get makes one bounded request over a new connection, and records the server's time. If the request fails, get records why. It
// shows the node's certificate only to a verified server. It takes the time even from an unverified server, because no server can
// be verified with a clock that is fifty years off.
func (w *walk) get(ctx context.Context, path string) (status int, body []byte) {
	conn := w.open(ctx)
	if conn == nil {
		return 0, nil
	}
	defer func() { _ = conn.Close() }()
	client := plainClient(w.Step, &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	})
	s, sent := w.server, time.Now()
	status, body, header, err := fetch(ctx, client, "https://"+w.host+strings.TrimSuffix(w.url.EscapedPath(), "/")+path)
	if stated, wrong := http.ParseTime(header.Get("Date")); wrong == nil && s.Date.IsZero() {
		// The server stated it about halfway through, in whole seconds.
		now := time.Now()
		s.Date, s.At = stated, now.Add(-now.Sub(sent)/2)
	}
	if err != nil && s.Why == "" {
		s.stop("see the API server's log, and what stands in between", "%s does not answer requests: %s", s.Address, cause(err))
	}
	return status, body
}

// open connects and speaks TLS; nil means that it does not come so far.
func (w *walk) open(ctx context.Context) *tls.Conn {
	connecting, cancel := context.WithTimeout(ctx, w.Step)
	defer cancel()
	conn, err := w.way.DialContext(connecting, "tcp", w.host)
	if err != nil {
		w.unconnected(err)
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(w.TLSServerName, w.url.Hostname())}
	config.InsecureSkipVerify = true // verify does it, and names each fault
	config.VerifyConnection = func(state tls.ConnectionState) error {
		w.verify(config.ServerName, state.PeerCertificates)
		return nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if w.held.Pair == nil || !w.server.Verified {
			return &tls.Certificate{}, nil
		}
		return w.held.Pair, nil
	}
	shaking, stop := context.WithTimeout(ctx, w.Step)
	defer stop()
	speaking := tls.Client(conn, config)
	if err := speaking.HandshakeContext(shaking); err != nil {
		_ = conn.Close()
		if w.server.Why == "" {
			w.server.stop("see whether that is the API server's port, and what stands in between",
				"%s takes connections but does not speak TLS: %s", w.server.Address, cause(err))
		}
		return nil
	}
	return speaking
}

// verify judges a server's certificates.
func (w *walk) verify(name string, chain []*x509.Certificate) {
	s, leaf, now := w.server, chain[0], time.Now()
	peer := fmt.Sprintf("the certificate of %s (%s)", s.Address, line(leaf.Subject.String()))
	if w.held.Roots == nil {
		s.Unknown = true
		s.stop("give --ca-file, or let yurthub discover it with --bootstrap-file and --discovery-token-ca-cert-hash",
			"%s answers, and %s cannot be verified yet: its authority is not known", s.Address, peer)
		return
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: w.held.Roots, Intermediates: between, CurrentTime: now, DNSName: name,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	switch {
	case err == nil:
		s.Verified = true
	case now.After(leaf.NotAfter):
		s.stop("set the clock if it is wrong; else renew the server's certificate (kubeadm certs renew)",
			"%s expired at %s, and the clock says %s", peer, date(leaf.NotAfter), date(now))
	case now.Before(leaf.NotBefore):
		s.stop("set this node's clock", "%s begins at %s, and the clock says %s", peer, date(leaf.NotBefore), date(now))
	case errors.As(err, &unknown):
		s.stop("get the present authority of the cloud; if that is right, something in between poses as the server",
			"%s is not signed by the authority in %s", peer, w.held.RootsFrom)
	case errors.As(err, &other):
		s.stop("give an address that is in the certificate, or have this one added (kubeadm: certSANs)",
			"%s is not for %s: %s", peer, name, cause(err))
	default:
		s.stop("see the API server's certificate", "%s is not valid: %s", peer, cause(err))
	}
}

// unconnected says why there is no connection.
func (w *walk) unconnected(err error) {
	s, at, name := w.server, w.server.Address, w.url.Hostname()
	var proxy *upstream.ProxyError
	var dns *net.DNSError
	switch {
	case errors.As(err, &proxy):
		s.proxyFailed(proxy)
	case errors.As(err, &dns) && dns.IsNotFound:
		s.stop("correct the name, or have it entered into DNS; or give an IP address",
			"the name %s of %s is not known", name, at)
	case errors.As(err, &dns):
		s.stop("see /etc/resolv.conf, and whether this node reaches the name servers in it",
			"no name server resolves %s of %s: %s", name, at, cause(err))
	case errors.Is(err, syscall.ECONNREFUSED):
		s.stop("see that the API server runs, and the firewalls for port "+cmp.Or(w.url.Port(), "443"),
			"%s refuses connections: the host is there, but nothing listens on that port, or a firewall says no", at)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		s.stop("ip route get "+name+"; see cables, routes and interfaces", "there is no way to %s: %s", at, cause(err))
	default:
		s.stop("the link is down, or a firewall swallows packets: ping "+name,
			"%s does not answer when connected to: %s", at, cause(err))
	}
}

func (s *Server) proxyFailed(err *upstream.ProxyError) {
	switch err.Kind {
	case upstream.Unreached:
		s.stop("see that the proxy runs, and the way there; or correct --proxy-file, or HTTPS_PROXY",
			"the proxy %s on the way to %s cannot be reached: %s", s.Proxy, s.Address, cause(err.Err))
	case upstream.Denied:
		s.stop("correct the user and the password in --proxy-file, or have the proxy allow this server",
			"the proxy %s does not let this node reach %s: %s", s.Proxy, s.Address, cause(err.Err))
	default:
		s.stop("the proxy runs: see its own way to the cloud, and its log",
			"the proxy %s does not reach %s: %s", s.Proxy, s.Address, cause(err.Err))
	}
}

// node asks for the Node, as the node: that is what a server allows every node.
func (w *walk) node(ctx context.Context) {
	s := w.server
	status, body := w.get(ctx, "/api/v1/nodes/"+url.PathEscape(string(w.Node)))
	var node corev1.Node
	switch {
	case s.Why != "":
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		s.stop("the certificate is expired, from another cluster, or another node's: see its line above",
			"%s does not take this node for %s by %s: status %d", s.Address, w.Node.User(), w.held.PairFrom, status)
	case status == http.StatusNotFound:
		s.Node.Asked = true
	case status == http.StatusOK && json.Unmarshal(body, &node) == nil:
		s.Node = Node{Asked: true, Found: true, Pool: line(node.Labels[edge.LabelNodePool])}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				s.Node.Ready = line(string(condition.Status))
			}
		}
	}
}

// failing returns the names of the /readyz checks that failed, or else the answer itself.
func failing(body string) string {
	var checks []string
	for row := range strings.Lines(body) {
		if name, found := strings.CutPrefix(row, "[-]"); found {
			name, _, _ = strings.Cut(name, " ")
			checks = append(checks, line(name))
		}
	}
	if len(checks) > 0 {
		return line(strings.Join(checks, ", "))
	}
	return line(body)
}
