// Package lookout looks for coordinators at the addresses of a pool's nodes. It recognizes a coordinator by its certificate
// alone. The pool's own authority has signed that certificate for the pool's own name, and the certificate contains the
// generation. A search trusts no other information, so nobody can mislead it.
//
// A search asks AtOnce addresses at a time, and gives each address the time Patience. So a slow or silent address holds up only
// one of the AtOnce places. The order is random each time, so that the same addresses do not always come first.
//
// The alternative was that coordinators or hubs announce where they are, by multicast or by a list that they pass on. A hub would
// have to verify such an announcement all the same, and a site's switches would have to forward it.
package lookout

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// AtOnce is how many addresses are looked at at a time.
	AtOnce = 8
	// Patience bounds the look at one address: a connection and a handshake on a LAN, with a machine that is busy.
	Patience = 2 * time.Second

	// leastPause is the least time between two searches, and pauseForEach the least time for each address of a search. So in a
	// pool of a thousand nodes, a hub makes at most ten connections a second. If all hubs search, each address gets at most ten a
	// second.
	leastPause   = 4 * time.Second
	pauseForEach = 100 * time.Millisecond
)

// Search says what to look for. All fields are required.
type Search struct {
	// ServerName is the name that a coordinator's certificate is for, and Roots are the authorities that may have signed it.
	ServerName string
	Roots      *x509.CertPool
	// Certificate is shown to whoever serves there.
	Certificate func() (*tls.Certificate, error)
	// Dial connects on the LAN.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the time by which certificates are checked.
	Now func() time.Time
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// Look tries each of the addresses, IP:PORT, once. It calls the function found for each address at which a coordinator serves, as
// soon as it knows. The calls come one at a time.
func (s Search) Look(ctx context.Context, addresses []string, found func(address string, is edge.Generation)) {
	todo := make(chan string)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range min(AtOnce, len(addresses)) {
		all.Go(func() {
			for at := range todo {
				is, err := s.ask(ctx, at)
				if err != nil {
					klog.FromContext(ctx).V(4).Info("No coordinator of the pool serves there", "address", at, "why", err)
					continue
				}
				mu.Lock()
				found(at, is)
				mu.Unlock()
			}
		})
	}
	for _, i := range s.Chance.Perm(len(addresses)) {
		todo <- addresses[i]
	}
	close(todo)
	all.Wait()
}

// ask returns the generation of the coordinator that serves at an address.
func (s Search) ask(ctx context.Context, at string) (edge.Generation, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	raw, err := s.Dial(ctx, "tcp", at)
	if err != nil {
		return edge.Generation{}, err
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{
		ServerName: s.ServerName, RootCAs: s.Roots, Time: s.Now, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.Certificate() },
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		return edge.Generation{}, err
	}
	shown := conn.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return edge.Generation{}, errors.New("it shows no certificate")
	}
	return edge.GenerationIn(shown[0])
}

// Pause returns how long to wait before the next look at n addresses, with jitter.
func Pause(n int, chance ends.Chance) time.Duration {
	least := max(leastPause, time.Duration(n)*pauseForEach)
	return least + chance.Below(least/2)
}
