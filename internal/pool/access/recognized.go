package access

import (
	"crypto/x509"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/lru"

	"yurtcoordinator/internal/ends"
)

// rememberedConnections bounds how many connections' callers are remembered: more than a pool has hubs and people.
const rememberedConnections = 256

// recognized authenticates callers by their client certificates. It verifies a certificate once per connection, not for each
// request, because a certificate can't change within a connection. It verifies again when the CAs have changed, and when a
// certificate of the verified chain has expired. For each request, the authorizer checks whether the certificate was withdrawn.
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
	known  *lru.Cache   // *tls.ConnectionState: *caller
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
	return &recognized{verify: verify, as: as, clock: c, known: lru.New(rememberedConnections)}
}

// AuthenticateRequest implements authenticator.Request.
func (k *recognized) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	options, ok := k.verify()
	if !ok || r.TLS == nil {
		return nil, false, nil
	}
	now := later(k.clock.Wall(), time.Unix(k.latest.Load(), 0))
	if found, ok := k.known.Get(r.TLS); ok {
		c, _ := found.(*caller)
		if c.roots == options.Roots && !now.Before(c.from) && !now.After(c.until) {
			return c.response, true, nil
		}
		k.known.Remove(r.TLS)
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
		k.known.Add(r.TLS, c)
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
