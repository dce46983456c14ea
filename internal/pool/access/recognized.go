package access

import (
	"context"
	"crypto/x509"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"

	"yurtcoordinator/internal/ends"
)

// callerKey is the key of a connection's *atomic.Pointer[caller].
type callerKey struct{}

// WithCaller returns a connection's context in which its caller is remembered, for as long as the connection lasts.
func WithCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, new(atomic.Pointer[caller]))
}

// recognized authenticates callers by their client certificates. With WithCaller, it verifies a certificate once per connection,
// not for each request, because a certificate can't change within a connection. It verifies again when the CAs have changed, and
// when a certificate of the verified chain has expired. For each request, the authorizer checks whether the certificate was
// withdrawn.
//
// It verifies at the later of two times: this machine's clock, and the latest NotBefore among the callers' certificates. An
// authority does not sign for the future, so a NotBefore has passed. With the clock alone, a machine that starts in 1970 would
// refuse the whole pool, and nobody could tell it the time.
//
// The alternative was to rely on the handshake alone. But connections last for days, and a hub whose certificate has expired, or
// whose CA was removed, would stay connected.
type recognized struct {
	verify requestx509.VerifyOptionFunc
	as     requestx509.UserConversion // says who a verified chain is
	clock  ends.Clock
	latest atomic.Int64 // NotBefore that was verified, in Unix seconds
}

// caller is whom a connection belongs to.
type caller struct {
	response *authenticator.Response
	roots    *x509.CertPool // that it was verified by
	// The chain is valid from the one to the other, both included.
	from, until time.Time
}

func newRecognized(verify requestx509.VerifyOptionFunc, as requestx509.UserConversion, c ends.Clock) *recognized {
	return &recognized{verify: verify, as: as, clock: c}
}

// AuthenticateRequest implements authenticator.Request.
func (k *recognized) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	options, ok := k.verify()
	if !ok || r.TLS == nil {
		return nil, false, nil
	}
	now := later(k.clock.Wall(), time.Unix(k.latest.Load(), 0))
	known, ok := r.Context().Value(callerKey{}).(*atomic.Pointer[caller])
	if !ok {
		known = &atomic.Pointer[caller]{}
	}
	if c := known.Load(); c != nil && c.roots == options.Roots && !now.Before(c.from) && !now.After(c.until) {
		return c.response, true, nil
	}
	if options.CurrentTime = now; len(r.TLS.PeerCertificates) > 0 {
		options.CurrentTime = later(now, r.TLS.PeerCertificates[0].NotBefore)
	}
	c := &caller{roots: options.Roots}
	byChain := requestx509.UserConversionFunc(func(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
		c.from, c.until = validity(chain)
		return k.as.User(chain)
	})
	response, ok, err := requestx509.New(options, byChain).AuthenticateRequest(r)
	if err == nil && ok {
		c.response = response
		known.Store(c)
		k.proves(r.TLS.PeerCertificates[0].NotBefore)
	}
	return response, ok, err
}

// proves takes in the NotBefore of a certificate that was verified.
func (k *recognized) proves(notBefore time.Time) {
	for {
		latest := k.latest.Load()
		if notBefore.Unix() <= latest || k.latest.CompareAndSwap(latest, notBefore.Unix()) {
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// validity returns when all certificates of a chain are valid.
func validity(chain []*x509.Certificate) (from, until time.Time) {
	for i, c := range chain {
		if i == 0 || c.NotBefore.After(from) {
			from = c.NotBefore
		}
		if i == 0 || c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return from, until
}
