package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// site is a network of addresses, for tests in a bubble.
type site struct {
	mu     sync.Mutex
	names  map[string][]netip.Addr
	silent map[string]bool // neither takes a connection nor refuses it
	closed map[string]bool // refuses connections
	mute   bool            // the name server does not answer
	asked  int
	dialed []string
}

var errRefused = errors.New("connection refused")

func (s *site) dial(ctx context.Context, _, to string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(to)
	s.mu.Lock()
	s.dialed = append(s.dialed, host)
	silent, closed := s.silent[host], s.closed[host]
	s.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case closed:
		return nil, errRefused
	}
	near, far := net.Pipe()
	_ = far.Close()
	return namedProxy{near, host}, nil
}

type namedProxy struct {
	net.Conn
	host string
}

func (s *site) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	s.mu.Lock()
	s.asked++
	mute, found := s.mute, s.names[host]
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if found == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return slices.Clone(found), nil
}

func (s *site) way(t *testing.T) *Way {
	t.Setenv("HTTPS_PROXY", "")
	t.Setenv("https_proxy", "")
	return NewWay(WayConfig{Dial: s.dial, Lookup: s.lookup})
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// reach dials within 3 s and returns the address that took the connection.
func reach(t *testing.T, w *Way, server string) (host string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	conn, err := w.DialContext(ctx, "tcp", server)
	if err != nil {
		return "", err
	}
	_ = conn.Close()
	return conn.(namedProxy).host, nil
}

func TestFirstAddressThatAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		addresses      []netip.Addr
		silent, closed string
		want           string
		took           time.Duration
		fails          error
	}{
		"the first": {addresses: addrs("10.0.0.1", "10.0.0.2"), want: "10.0.0.1"},
		"the first is silent": {addresses: addrs("10.0.0.1", "10.0.0.2"), silent: "10.0.0.1", want: "10.0.0.2",
			took: stagger},
		"the first refuses": {addresses: addrs("10.0.0.1", "10.0.0.2"), closed: "10.0.0.1", want: "10.0.0.2"},
		"all but the last": {addresses: addrs("10.0.0.1", "10.0.0.2", "10.0.0.3"), silent: "10.0.0.1 10.0.0.2",
			want: "10.0.0.3", took: 2 * stagger},
		"a family leads nowhere": {addresses: addrs("fd00::1", "fd00::2", "10.0.0.1"), silent: "fd00::1 fd00::2",
			want: "10.0.0.1", took: stagger},
		"all refuse": {addresses: addrs("10.0.0.1", "10.0.0.2"), closed: "10.0.0.1 10.0.0.2", fails: errRefused},
		"all are silent": {addresses: addrs("10.0.0.1", "10.0.0.2"), silent: "10.0.0.1 10.0.0.2",
			fails: context.DeadlineExceeded, took: 3 * time.Second},
		"one refuses, one is silent": {addresses: addrs("10.0.0.1", "10.0.0.2"), silent: "10.0.0.1", closed: "10.0.0.2",
			fails: context.DeadlineExceeded, took: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{names: map[string][]netip.Addr{"cloud": tt.addresses}, silent: map[string]bool{},
				closed: map[string]bool{}}
			for _, h := range strings.Fields(tt.silent) {
				s.silent[h] = true
			}
			for _, h := range strings.Fields(tt.closed) {
				s.closed[h] = true
			}
			w := s.way(t)
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got, err := reach(t, w, "cloud:6443")
				if got != tt.want || !errors.Is(err, tt.fails) {
					t.Errorf("reached %q, %v; want %q, %v", got, err, tt.want, tt.fails)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

func TestNamesAreFollowed(t *testing.T) {
	s := &site{names: map[string][]netip.Addr{"cloud": addrs("10.0.0.1")}}
	w := s.way(t)
	synctest.Test(t, func(t *testing.T) {
		if got, err := reach(t, w, "cloud:6443"); got != "10.0.0.1" || err != nil {
			t.Errorf("reached %q, %v", got, err)
		}
		s.names["cloud"] = addrs("10.0.0.2")
		if got, err := reach(t, w, "cloud:6443"); got != "10.0.0.2" || err != nil {
			t.Errorf("reached %q, %v: the name leads elsewhere now", got, err)
		}
		now, followed, err := w.Addresses(t.Context(), "cloud:6443")
		if !slices.Equal(now, addrs("10.0.0.2")) || !followed || err != nil {
			t.Errorf("its addresses are %v, %v, %v", now, followed, err)
		}
		if _, followed, err := w.Addresses(t.Context(), "[fd00::1]:6443"); followed || err != nil {
			t.Errorf("an address is followed (%v), as if it were a name", err)
		}
	})
}

func TestNameServerIsGone(t *testing.T) {
	s := &site{names: map[string][]netip.Addr{"cloud": addrs("10.0.0.1")}}
	w := s.way(t)
	synctest.Test(t, func(t *testing.T) {
		if _, err := reach(t, w, "cloud:6443"); err != nil {
			t.Fatal(err)
		}
		s.mute = true
		start := time.Now()
		if got, err := reach(t, w, "cloud:6443"); got != "10.0.0.1" || err != nil || time.Since(start) != patience {
			t.Errorf("reached %q, %v, in %v; want the address of before in %v", got, err, time.Since(start), patience)
		}
		if _, err := reach(t, w, "other:6443"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a name that was never known: %v", err)
		}
		if _, followed, err := w.Addresses(timedOut(t), "cloud:6443"); !followed || err == nil {
			t.Errorf("what is not known now is told as if it were: %v, %v", followed, err)
		}
		s.mute, s.names = false, nil
		if got, err := reach(t, w, "cloud:6443"); got != "10.0.0.1" || err != nil {
			t.Errorf("reached %q, %v; a name server that has lost the name is no reason to be cut off", got, err)
		}
	})
}

func timedOut(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestInterleave(t *testing.T) {
	var many []netip.Addr
	for i := range byte(100) {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, 0, i}))
	}
	for _, tt := range []struct{ in, want []netip.Addr }{
		{addrs("10.0.0.1"), addrs("10.0.0.1")},
		{addrs("10.0.0.1", "10.0.0.2", "fd00::1"), addrs("10.0.0.1", "fd00::1", "10.0.0.2")},
		{addrs("fd00::1", "fd00::2", "fd00::3", "10.0.0.1"), addrs("fd00::1", "10.0.0.1", "fd00::2", "fd00::3")},
		{many, many[:maxAddresses]},
	} {
		if got := interleave(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%v becomes %v, want %v", tt.in, got, tt.want)
		}
	}
}
