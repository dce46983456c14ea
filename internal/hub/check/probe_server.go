package check

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/way"
)

// probeServer goes towards a server step by step, until one fails.
func probeServer(ctx context.Context, c Config, name, address string) Server {
	s := Server{Name: name, Address: address}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		s.Problem, s.Detail = BadAddress, "want https://HOST:PORT"
		return s
	}
	_, secrets := readKeys(c)
	w := walk{
		Config: c, server: &s, url: u, known: cmp.Or(c.ServerName, u.Hostname()), roots: secrets.cloud, pair: secrets.pair,
		way: way.New(way.Config{Proxy: c.Proxy}),
	}
	if name == nameCoordinator {
		w.way = way.New(way.Config{Proxy: way.Settings{Direct: true}}) // it is on the LAN
		w.roots, w.known = secrets.coordinator, u.Hostname()
		if c.CoordinatorName != "" {
			w.known = c.CoordinatorName
		}
	}
	s.With = secrets.with
	through, ok := w.proxied()
	if !ok || !through && !w.resolve(ctx) { // a proxy resolves names itself
		return s
	}
	conn := w.connect(ctx)
	if conn == nil {
		return s
	}
	defer conn.Close()
	if answered := w.handshake(ctx, conn); answered != nil {
		w.dated(ctx, answered)
	}
	if s.Problem == "" && s.Verified {
		w.converse(ctx)
	}
	return s
}

// walk is one way to a server.
type walk struct {
	Config
	server *Server
	way    *way.Way
	url    *url.URL
	known  string // the name in its certificate
	roots  *x509.CertPool
	pair   *tls.Certificate
}

func (w *walk) stop(p Problem, err error) bool {
	w.server.Problem = p
	if err != nil {
		w.server.Detail = cause(err)
	}
	return false
}

func (w *walk) host() string {
	port := w.url.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(w.url.Hostname(), port)
}

// proxied finds out whether a proxy is on the way.
func (w *walk) proxied() (through, ok bool) {
	proxy, err := w.way.Proxy(w.host())
	if err != nil {
		return false, w.stop(NoProxy, err)
	}
	w.server.Proxy = proxy
	return proxy != "", true
}

func (w *walk) resolve(ctx context.Context) bool {
	name := w.url.Hostname()
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, w.Step)
	defer cancel()
	_, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	var dns *net.DNSError
	switch {
	case err == nil:
		return true
	case errors.As(err, &dns) && dns.IsNotFound:
		return w.stop(NoName, errors.New("no such host"))
	default:
		return w.stop(NoNameServer, err)
	}
}

// problems are those of a proxy.
var problems = map[way.ProxyKind]Problem{
	way.Unusable: NoProxy, way.Unreached: ProxyUnreached, way.Denied: ProxyDenies, way.Stuck: ProxyStuck,
}

func (w *walk) connect(ctx context.Context) net.Conn {
	ctx, cancel := context.WithTimeout(ctx, w.Step)
	defer cancel()
	conn, err := w.way.DialContext(ctx, "tcp", w.host())
	var proxy *way.ProxyError
	switch {
	case err == nil:
		return conn
	case errors.As(err, &proxy):
		w.stop(problems[proxy.Kind], proxy.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		w.stop(Refused, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		w.stop(NoRoute, err)
	default:
		w.stop(NoConnection, err)
	}
	return nil
}

// handshake speaks TLS without the node's certificate, and verifies the server's itself, to tell what exactly is wrong with
// it. It returns the connection if TLS works at all; nothing secret may go over it.
func (w *walk) handshake(ctx context.Context, conn net.Conn) *tls.Conn {
	ctx, cancel := context.WithTimeout(ctx, w.Step)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: w.known}
	config.InsecureSkipVerify = true // verify does it, and names each fault; an unverified server is only asked for the time
	speaking := tls.Client(conn, config)
	if err := speaking.HandshakeContext(ctx); err != nil {
		w.stop(NoHandshake, err)
		return nil
	}
	w.verify(speaking.ConnectionState().PeerCertificates)
	return speaking
}

// verify judges a server's certificates.
func (w *walk) verify(chain []*x509.Certificate) {
	s := w.server
	if len(chain) == 0 {
		w.stop(BadCertificate, errors.New("the server has none"))
		return
	}
	leaf := chain[0]
	s.Peer = line(leaf.Subject.String())
	s.PeerFrom, s.PeerEnd = leaf.NotBefore, leaf.NotAfter
	if w.roots == nil {
		w.stop(NoAuthority, nil)
		return
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	now := w.Now()
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: w.roots, Intermediates: between, CurrentTime: now, DNSName: w.known,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case err == nil:
		s.Verified = true
	case now.After(leaf.NotAfter):
		w.stop(Expired, nil)
	case now.Before(leaf.NotBefore):
		w.stop(NotYetValid, nil)
	case errors.As(err, &unknown):
		w.stop(UnknownAuthority, nil)
	case errors.As(err, &name):
		w.stop(WrongName, name)
	default:
		w.stop(BadCertificate, err)
	}
}

// dated asks for the time anonymously, over the untrusted connection. A refusal is no problem: a server may want to know who
// asks.
func (w *walk) dated(ctx context.Context, conn *tls.Conn) {
	client := &http.Client{
		Timeout: w.Step,
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	_, _, err := w.request(ctx, client, http.MethodGet, "/readyz", nil)
	if err != nil && !demands(err) && w.server.Problem == "" && w.pair == nil && w.server.Date.IsZero() {
		w.stop(NoAnswer, err)
	}
}

// demands reports whether a server refused to speak to somebody without a certificate, as a coordinator does.
func demands(err error) bool {
	return strings.Contains(err.Error(), "remote error: tls: certificate required")
}

// converse asks a verified server, as the node, whether it is ready, who the node is to it, and what it knows about the
// node.
func (w *walk) converse(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.Step)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: w.roots, ServerName: w.known, Time: w.Now}
	if w.pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return w.pair, nil }
	}
	transport := &http.Transport{
		TLSClientConfig: config, DialContext: w.way.DialContext, MaxConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	status, body, err := w.request(ctx, client, http.MethodGet, "/readyz", nil)
	switch {
	case err != nil && w.pair == nil && demands(err):
		return // it speaks, and not to nobody
	case err != nil && strings.Contains(err.Error(), "remote error: tls:"):
		w.stop(RefusedPair, err)
		return
	case err != nil:
		w.stop(NoAnswer, err)
		return
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		w.stop(NotReady, fmt.Errorf("status %d: %s", status, failing(string(body))))
		return
	}
	if w.pair == nil {
		return // without a certificate there is nobody to recognize
	}
	if w.whoAmI(ctx, client) && w.server.Name == nameCloud {
		w.node(ctx, client)
	}
}

// whoAmI asks the server who the node is to it. If a server cannot say, its other answers decide.
func (w *walk) whoAmI(ctx context.Context, client *http.Client) bool {
	s := w.server
	ask := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	status, body, err := w.request(ctx, client, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", ask)
	var review authenticationv1.SelfSubjectReview
	switch {
	case err != nil:
		return w.stop(NoAnswer, err)
	case status == http.StatusUnauthorized, strings.Contains(string(body), `"system:anonymous\"`):
		return w.stop(Unauthorized, fmt.Errorf("status %d", status))
	case status == http.StatusCreated && json.Unmarshal(body, &review) == nil:
		s.User, s.Groups = line(review.Status.UserInfo.Username), review.Status.UserInfo.Groups
		if s.User != w.Node.User() {
			return w.stop(OtherUser, nil)
		}
	}
	return true
}

func (w *walk) node(ctx context.Context, client *http.Client) {
	status, body, err := w.request(ctx, client, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(string(w.Node)), nil)
	var node corev1.Node
	switch {
	case err != nil:
	case status == http.StatusNotFound:
		w.server.Node.Asked = true
	case status == http.StatusOK && json.Unmarshal(body, &node) == nil:
		n := Node{Asked: true, Found: true, Pool: line(node.Labels[edge.LabelNodePool])}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				n.Ready = line(string(condition.Status))
			}
		}
		w.server.Node = n
	}
}

// request makes one bounded request, and notes the time that the server states.
func (w *walk) request(ctx context.Context, client *http.Client, method, path string, body []byte) (int, []byte, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+w.host()+strings.TrimSuffix(w.url.EscapedPath(),
		"/")+path, content)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "yurthub-check")
	sent := w.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil && w.server.Date.IsZero() {
		// The server stated it about halfway through, in whole seconds.
		now := w.Now()
		w.server.Date, w.server.At = date, now.Add(-now.Sub(sent)/2)
	}
	answer, err := readAtMost(resp.Body)
	return resp.StatusCode, answer, err
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
