package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// dialFor and answerFor bound one connection and one request. They leave room for two round trips over a bad link.
const (
	dialFor   = 5 * time.Second
	answerFor = 15 * time.Second
)

// errUnreachable means that no server was reached. errRefused means that a server does not know the credential, or does not
// allow the request.
var (
	errUnreachable = errors.New("the cloud cannot be reached")
	errRefused     = errors.New("the cloud does not accept it")
)

// session is a connection to one server with one credential.
type session struct {
	*kubernetes.Clientset
	transport *http.Transport
	as        credential
	// chains are those by which the server was verified last.
	chains atomic.Pointer[[][]*x509.Certificate]
}

func (s *session) close() { s.transport.CloseIdleConnections() }

// open makes a session without connecting yet. Without roots it does not verify the server; then it refuses any credential.
func (m *Manager) open(server *url.URL, roots *x509.CertPool, as credential) (*session, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Time: m.cfg.Ends.Wall, ServerName: m.cfg.ServerName}
	s := &session{as: as}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		s.chains.Store(&state.VerifiedChains)
		return nil
	}
	if roots == nil {
		if as.token != "" || as.pair != nil {
			return nil, errors.New("a credential must not go to an unverified server")
		}
		config.InsecureSkipVerify = true // the token signs what is read here, and a hash pins it: see discover
	}
	if as.pair != nil {
		// The client offers the certificate whatever authorities the server names. So a refusal is about this certificate, and
		// not about a missing one.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return as.pair, nil }
	}
	transport := &http.Transport{
		TLSClientConfig:     config,
		DialContext:         m.dial,
		TLSHandshakeTimeout: dialFor,
		MaxConnsPerHost:     1,
	}
	client := &http.Client{
		Transport:     bearer{transport, as.token},
		Timeout:       answerFor,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	set, err := kubernetes.NewForConfigAndClient(&rest.Config{
		Host:           server.String(),
		UserAgent:      "yurthub",
		ContentConfig:  rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
		QPS:            -1,                // the Manager pauses by itself
		WarningHandler: rest.NoWarnings{}, // which would log what a server says
	}, client)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", server, err)
	}
	s.Clientset, s.transport = set, transport
	return s, nil
}

// verifiedBy returns the authorities that verified the server.
func (s *session) verifiedBy() (roots []*x509.Certificate) {
	if chains := s.chains.Load(); chains != nil {
		for _, chain := range *chains {
			roots = append(roots, chain[len(chain)-1])
		}
	}
	return roots
}

// bearer adds a token. rest.Config could, but would keep the token.
type bearer struct {
	next  http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// failed turns the error of a request into one of ours: with its class, on one line, and without secrets.
func (s *session) failed(ctx context.Context, doing string, err error) error {
	text := s.as.scrub(err.Error())
	const most = 512
	if len(text) > most {
		text = text[:most] + "…"
	}
	text = strings.Join(strings.Fields(text), " ")
	var status apierrors.APIStatus
	var untrusted *tls.CertificateVerificationError
	switch {
	case apierrors.IsUnauthorized(err) && s.as.bootstrapToken():
		return &classified{errRefused, fmt.Sprintf("%s with %s is refused: it has expired, or was deleted: kubeadm token create "+
			"makes another", doing, s.as)}
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return &classified{errRefused, fmt.Sprintf("%s with %s is refused: %s", doing, s.as, text)}
	case errors.As(err, &status):
		return fmt.Errorf("%s: %s", doing, text) // not %w: the chain would carry what was scrubbed
	case errors.As(err, &untrusted):
		text = fmt.Sprintf("the API server's certificate cannot be trusted: %s", text)
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	return &classified{errUnreachable, fmt.Sprintf("%s: %s", doing, text)}
}

// classified is an error's text, with the class that decides what to do about it.
type classified struct {
	class error
	text  string
}

func (c *classified) Error() string { return c.text }
func (c *classified) Unwrap() error { return c.class }

func (c credential) String() string {
	if c.what == "" {
		return "no credential"
	}
	return c.what
}
