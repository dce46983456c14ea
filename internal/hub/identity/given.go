package identity

import (
	"context"
	"crypto/tls"
	"errors"

	"yurtcoordinator/internal/live"
)

// Given are the certificate files of a node where somebody else maintains them, in place of a Manager.
type Given struct{ CA, Cert, Key string }

// Files returns their paths.
func (g Given) Files() (ca, cert, key string) { return g.CA, g.Cert, g.Key }

// Ensure returns nil: the programs that read the files say what is wrong with them.
func (Given) Ensure(context.Context) error { return nil }

// Serving fails each handshake, because without a Manager there is no serving certificate.
func (Given) Serving(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, errors.New("no certificate to serve with: the hub gets none by itself")
}

// Served never has a certificate.
func (Given) Served() *live.Value[*tls.Certificate] { return live.NewValue[*tls.Certificate](nil) }

// FollowAuthorities waits for ctx to end: the authorities are in one of these files.
func (Given) FollowAuthorities(ctx context.Context, _ func() (bool, <-chan struct{})) error {
	<-ctx.Done()
	return nil
}

// Report returns nil: nobody watches these files here.
func (Given) Report() *Status { return nil }
