package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// ErrDown is what every DownError is.
var ErrDown = errors.New("link is down")

// errMoved ends requests and connections to an address that the server has left.
var errMoved = errors.New("the server is elsewhere now")

// ErrNotRunning is the error of requests made while Run is not running.
var ErrNotRunning = errors.New("upstream is not running")

// errNoHTTP2 says that the server speaks HTTP/1.1 only.
var errNoHTTP2 = errors.New("the server does not speak HTTP/2")

// DownError says that a link is down. The request was either refused without being sent, or was cut off.
type DownError struct {
	Name  string    // of the upstream
	Since time.Time // when the link went down
	Sent  bool      // the request was cut off, and the server may have acted on it
	Err   error     // the error of the probes, or of the request
}

// Error names the link, and says since when and why it is down.
func (e *DownError) Error() string {
	why := strings.ReplaceAll(e.Err.Error(), "\n", "; ") // of several servers
	return fmt.Sprintf("the link to the %s is down since %s: %s", e.Name, e.Since.UTC().Format(time.RFC3339), why)
}

// Is reports that a DownError is ErrDown.
func (e *DownError) Is(target error) bool { return target == ErrDown }

// Unwrap returns the error of the probes, or of the request.
func (e *DownError) Unwrap() error { return e.Err }

// CertificateError says that the hub and the server reach each other but do not trust each other. Waiting will not repair that.
type CertificateError struct {
	Advice string // what to look at
	Err    error
}

// Error says what is wrong and what to look at.
func (e *CertificateError) Error() string { return fmt.Sprintf("%v: %s", e.Err, e.Advice) }

// Unwrap returns the error of the handshake.
func (e *CertificateError) Unwrap() error { return e.Err }

// ConnectError is a failure before any part of a request was sent.
type ConnectError struct {
	Server string // HOST:PORT
	Err    error
}

// Error names the server, and says why.
func (e *ConnectError) Error() string { return fmt.Sprintf("connecting to %s: %v", e.Server, e.Err) }

// Unwrap returns why.
func (e *ConnectError) Unwrap() error { return e.Err }

// NotSent reports whether err says that nothing of the request was sent, so that even a write may be repeated.
func NotSent(err error) bool {
	if down := (*DownError)(nil); errors.As(err, &down) {
		return !down.Sent
	}
	return connectFailed(err) || errors.Is(err, ErrNotRunning)
}

func connectFailed(err error) bool {
	failed := (*ConnectError)(nil)
	return errors.As(err, &failed)
}

// explain returns err, wrapped in a CertificateError if the hub and the server do not trust each other.
func (c Config) explain(err error) error {
	var (
		already   *CertificateError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		remote    *net.OpError
	)
	advice := ""
	switch {
	case err == nil || errors.As(err, &already):
	case errors.As(err, &authority):
		advice = "the server's certificate is not signed by the CA in " + c.CAFile + "; give the CA of this server"
	case errors.As(err, &host):
		advice = "the server's certificate is for other names; use one of them as its address"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		advice = "renew the server's certificate, or set this node's clock"
	case errors.As(err, &invalid), errors.As(err, &verify):
		advice = "the server's certificate cannot be used"
	case errors.As(err, &remote) && refusesCertificate(remote):
		advice = "the server refuses the client certificate in " + c.CertFile + "; check its issuer and dates"
	}
	if advice == "" {
		return err
	}
	return &CertificateError{Advice: advice, Err: err}
}

// refusesCertificate reports whether e is a TLS alert by which the server refuses the client certificate (RFC 8446, section 6).
// It compares texts, because crypto/tls does not export the type of a received alert.
func refusesCertificate(e *net.OpError) bool {
	if e.Op != "remote error" || e.Err == nil {
		return false
	}
	for _, alert := range []tls.AlertError{
		42,  // bad_certificate
		43,  // unsupported_certificate
		44,  // certificate_revoked
		45,  // certificate_expired
		46,  // certificate_unknown
		48,  // unknown_ca
		49,  // access_denied
		116, // certificate_required
	} {
		if e.Err.Error() == alert.Error() {
			return true
		}
	}
	return false
}
