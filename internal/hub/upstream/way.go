package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// patience is how long a name server may take if the previous addresses are known.
	patience = 500 * time.Millisecond
	// stagger is how long the hub tries one address before it tries the next one as well (RFC 8305 has 250 ms).
	stagger = 250 * time.Millisecond
	// maxAddresses bounds how many addresses of a name are tried for one connection, maxNames how many names are remembered.
	maxAddresses, maxNames = 16, 64
)

// WayConfig is what a Way needs.
type WayConfig struct {
	// Proxy says through which proxy the cloud is reached.
	Proxy WaySettings
	// Dial opens a connection to one address, or to a proxy by its name; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Lookup returns the addresses of a name, best first; nil means the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Way opens connections to the cloud. Safe for concurrent use.
type Way struct {
	cfg WayConfig

	mu    sync.Mutex
	known map[string][]netip.Addr // by name, as last looked up
}

// NewWay returns a Way.
func NewWay(cfg WayConfig) *Way {
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Lookup == nil {
		cfg.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return &Way{cfg: cfg, known: map[string][]netip.Addr{}}
}

// DialContext opens a connection to a server, HOST:PORT. If the proxy is the reason for a failure, the error is a ProxyError.
func (w *Way) DialContext(ctx context.Context, network, server string) (net.Conn, error) {
	proxy, err := w.cfg.Proxy.For(server)
	if err != nil {
		return nil, &ProxyError{Kind: Unusable, Err: err}
	}
	if proxy != nil {
		return w.through(ctx, proxy, server)
	}
	return w.direct(ctx, network, server)
}

// Proxy returns the URL of the proxy to a server, HOST:PORT, without user and password; empty means that no proxy is used.
func (w *Way) Proxy(server string) (string, error) {
	proxy, err := w.cfg.Proxy.For(server)
	if err != nil || proxy == nil {
		return "", err
	}
	return shown(proxy), nil
}

// direct opens a connection without a proxy.
func (w *Way) direct(ctx context.Context, network, server string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return w.cfg.Dial(ctx, network, server)
	}
	addresses, err := w.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	return w.race(ctx, network, port, addresses)
}

// Addresses asks the name server for the addresses that a server's name has now. followed is false if there is no name to
// follow, because the server is an IP address or because a proxy resolves its name.
func (w *Way) Addresses(ctx context.Context, server string) (now []netip.Addr, followed bool, err error) {
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		return nil, false, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil, false, nil
	}
	if proxy, err := w.cfg.Proxy.For(server); err != nil || proxy != nil {
		return nil, false, err
	}
	now, err = w.lookUp(ctx, host)
	return now, true, err
}

// lookup returns a name's addresses. These are the previous ones if the lookup fails or takes longer than patience.
func (w *Way) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	before := w.known[host]
	w.mu.Unlock()
	if before == nil {
		return w.lookUp(ctx, host)
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if now, err := w.lookUp(asking, host); err == nil {
		return now, nil
	}
	return before, context.Cause(ctx)
}

// lookUp looks a name up, and remembers what it has found.
func (w *Way) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	found, err := w.cfg.Lookup(ctx, host)
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	found = interleave(found)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, had := w.known[host]; had || len(w.known) < maxNames {
		w.known[host] = found
	}
	return found, nil
}

// interleave alternates IPv4 and IPv6 addresses, so that an unreachable family costs one try. It begins with the family of the
// first address, and returns at most maxAddresses.
func interleave(all []netip.Addr) []netip.Addr {
	var first, other, mixed []netip.Addr
	for _, a := range all {
		if a.Is4() == all[0].Is4() {
			first = append(first, a)
		} else {
			other = append(other, a)
		}
	}
	for len(first) > 0 || len(other) > 0 {
		mixed = append(mixed, first[:min(1, len(first))]...)
		mixed = append(mixed, other[:min(1, len(other))]...)
		first, other = first[min(1, len(first)):], other[min(1, len(other)):]
	}
	return mixed[:min(maxAddresses, len(mixed))]
}

// race connects to the first address that accepts a connection. It tries the next address when one fails, or after the time
// stagger. If all fail, it returns the error of the first address in the list.
func (w *Way) race(ctx context.Context, network, port string, addresses []netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		conn net.Conn
		err  error
		at   int
	}
	outcomes := make(chan outcome, len(addresses))
	var tries sync.WaitGroup
	begun, ended := 0, 0
	defer func() {
		cancel()
		tries.Wait() // dials end with their context
		for range begun - ended {
			if late := <-outcomes; late.conn != nil {
				_ = late.conn.Close() // it came second, and nothing was sent
			}
		}
	}()
	try := func() {
		at, to := begun, net.JoinHostPort(addresses[begun].String(), port)
		begun++
		tries.Go(func() {
			conn, err := w.cfg.Dial(ctx, network, to)
			outcomes <- outcome{conn, err, at}
		})
	}
	errs := make([]error, len(addresses))
	next := time.NewTimer(stagger)
	defer next.Stop()
	for try(); ; {
		select {
		case o := <-outcomes:
			ended++
			if o.err == nil {
				return o.conn, nil
			}
			errs[o.at] = o.err
			if begun == len(addresses) && ended == begun {
				return nil, firstOf(errs)
			}
			if begun < len(addresses) {
				try()
				next.Reset(stagger)
			}
		case <-next.C:
			if begun < len(addresses) {
				try()
				next.Reset(stagger)
			}
		}
	}
}

// firstOf returns the first error other than a cancellation, which only ends the other tries.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errs[0]
}
