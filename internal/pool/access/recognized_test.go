package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/pooltest"
)

// cas are a server's present CAs.
type cas struct{ options x509.VerifyOptions }

func (c *cas) trust(of ...*pooltest.Authority) {
	c.options = x509.VerifyOptions{Roots: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, a := range of {
		c.options.Roots.AddCert(a.Cert)
	}
}

func (c *cas) verify() (x509.VerifyOptions, bool) { return c.options, c.options.Roots != nil }

// forbid makes any verification fail, and leaves the CAs as they are.
func (c *cas) forbid() { c.options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning} }

// connection is one that a client has opened with a certificate.
func connection(t testing.TB, a *pooltest.Authority, name string, until time.Time) *tls.ConnectionState {
	t.Helper()
	pair := a.Issue(t, pkix.Name{CommonName: name, Organization: []string{"system:nodes", "system:masters"}}, until)
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.TLS(t).Leaf}}
}

func from(on *tls.ConnectionState) *http.Request {
	return &http.Request{Method: http.MethodGet, TLS: on, Header: http.Header{}}
}

// opened returns a request over a connection of its own.
func opened(on *tls.ConnectionState) *http.Request {
	return from(on).WithContext(WithCaller(context.Background()))
}

// TestRecognized holds that a connection's certificate is verified once, and again whenever the result may be another.
func TestRecognized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, others := pooltest.NewAuthority(t, "ours"), pooltest.NewAuthority(t, "others")
		var trusted cas
		trusted.trust(ours)
		door := AtTheDoor(trusted.verify, "", ends.Clock{})
		hub := opened(connection(t, ours, "system:node:n1", time.Now().Add(time.Hour)))
		check := func(when string, over *http.Request, want bool) {
			t.Helper()
			response, ok, err := door.AuthenticateRequest(over)
			if got := ok && err == nil; got != want {
				t.Fatalf("%s: recognized %v (%v), want %v", when, got, err, want)
			}
			if !want {
				return
			}
			groups := response.User.GetGroups()
			if response.User.GetName() != "system:node:n1" || slices.Contains(groups, user.SystemPrivilegedGroup) ||
				!slices.Contains(groups, "system:nodes") || !slices.Contains(groups, user.AllAuthenticated) {
				t.Fatalf("%s: recognized as %v", when, response.User)
			}
		}
		check("at first", hub, true)
		trusted.forbid()
		check("again, on the same connection", hub, true)
		check("on another connection", opened(hub.TLS), false)
		trusted.trust(others)
		check("with other CAs", hub, false)
		trusted.trust(others, ours)
		check("with both CAs", hub, true)
		trusted.forbid()
		time.Sleep(time.Hour)
		check("in the last moment of its certificate", hub, true)
		time.Sleep(time.Second)
		trusted.trust(ours)
		check("once its certificate has expired", hub, false)

		lasting := opened(connection(t, ours, "system:node:n1", time.Now().Add(72*time.Hour)))
		check("with a certificate that lasts longer than its CA", lasting, true)
		time.Sleep(time.Until(ours.Cert.NotAfter) + time.Second)
		check("once the CA's own has expired", lasting, false)
		trusted.options.Roots = nil
		k := newRecognized(trusted.verify, requestx509.CommonNameUserConversion, ends.Clock{})
		if _, ok, err := k.AuthenticateRequest(lasting); ok || err != nil {
			t.Errorf("without any CA: recognized %v, %v; want no opinion", ok, err)
		}
	})
}

// TestRecognizedOnAMachineWithoutAClock: after a power cut a machine may start in 1970. The pool's certificates tell it better.
func TestRecognizedOnAMachineWithoutAClock(t *testing.T) {
	ours, others := pooltest.NewAuthority(t, "ours"), pooltest.NewAuthority(t, "others")
	var trusted cas
	trusted.trust(ours)
	wall := time.Unix(1000, 0)
	k := newRecognized(trusted.verify, requestx509.CommonNameUserConversion, ends.Clock{OfDay: func() time.Time { return wall }})
	is := func(what string, over *http.Request, want bool) {
		t.Helper()
		if _, ok, err := k.AuthenticateRequest(over); (ok && err == nil) != want {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
	is("another pool's", opened(connection(t, others, "system:node:n1", time.Now().Add(time.Hour))), false)
	hub := opened(connection(t, ours, "system:node:n1", time.Now().Add(time.Hour)))
	expired := opened(connection(t, ours, "system:node:n2", hub.TLS.PeerCertificates[0].NotBefore.Add(-time.Second)))
	expired.TLS.PeerCertificates[0].NotBefore = time.Unix(0, 0)
	is("a hub's, of today", hub, true)
	is("and again", hub, true)
	is("one that has expired before", expired, false)
	wall = time.Now()
	is("once the clock is right", hub, true)
	wall = time.Now().Add(2 * time.Hour)
	is("once it has expired", hub, false)
	wall = time.Unix(1000, 0)
	is("in 1970 again", hub, true)
}

// TestRecognizedOfALargePool: 500 nodes have more than 1000 connections, whose callers are all remembered.
func TestRecognizedOfALargePool(t *testing.T) {
	ours := pooltest.NewAuthority(t, "ours")
	var trusted cas
	trusted.trust(ours)
	k := newRecognized(trusted.verify, requestx509.CommonNameUserConversion, ends.Clock{})
	hub := connection(t, ours, "system:node:n1", time.Now().Add(time.Hour))
	all := make([]*http.Request, 1200)
	for i := range all {
		all[i] = opened(&tls.ConnectionState{PeerCertificates: hub.PeerCertificates})
		if _, ok, err := k.AuthenticateRequest(all[i]); !ok || err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	trusted.forbid()
	for i, again := range all {
		if _, ok, err := k.AuthenticateRequest(again); !ok || err != nil {
			t.Fatalf("again, on connection %d: %v", i, err)
		}
	}
}

// BenchmarkRecognized compares a verification for each request with one for each connection.
func BenchmarkRecognized(b *testing.B) {
	ours := pooltest.NewAuthority(b, "ours")
	var trusted cas
	trusted.trust(ours)
	r := opened(connection(b, ours, "system:node:n1", time.Now().Add(time.Hour)))
	each := requestx509.NewDynamic(trusted.verify, requestx509.CommonNameUserConversion)
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := each.AuthenticateRequest(r); !ok {
				b.Fatal(err)
			}
		}
	})
	once := newRecognized(trusted.verify, requestx509.CommonNameUserConversion, ends.Clock{})
	b.Run("connection", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := once.AuthenticateRequest(r); !ok {
				b.Fatal(err)
			}
		}
	})
}
