package pool

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// lookForAddresses is how often the file of addresses is read. kubelet takes a minute to change a mounted Secret.
	lookForAddresses = 5 * time.Second
	// maxAddresses bounds the addresses in it.
	maxAddresses = 8
)

// spread is a listener at several addresses: one that stays, and those that a file names.
type spread struct {
	net.Listener // the one that stays
	accepted     chan accepted
	closed       chan struct{}
	serving      sync.WaitGroup // the goroutines that accept

	mu   sync.Mutex
	more map[netip.Addr]net.Listener // nil once closed
}

type accepted struct {
	conn net.Conn
	err  error
}

// newSpread returns a spread with the listener that stays. Close frees it.
func newSpread(stays net.Listener) *spread {
	s := &spread{
		Listener: stays, accepted: make(chan accepted), closed: make(chan struct{}), more: map[netip.Addr]net.Listener{},
	}
	s.serving.Go(func() { s.accept(stays) })
	return s
}

// accept hands on what one of the listeners accepts, until that is closed.
func (s *spread) accept(from net.Listener) {
	for {
		conn, err := from.Accept()
		if err != nil && errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case s.accepted <- accepted{conn, err}:
		case <-s.closed:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (s *spread) Accept() (net.Conn, error) {
	select {
	case a := <-s.accepted:
		return a.conn, a.err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *spread) Close() error {
	s.mu.Lock()
	all := s.more
	s.more = nil
	s.mu.Unlock()
	if all == nil {
		return net.ErrClosed
	}
	close(s.closed)
	err := s.Listener.Close()
	for _, l := range all {
		err = errors.Join(err, l.Close())
	}
	s.serving.Wait()
	return err
}

// follow listens at the addresses that a file names, one per line, until ctx ends.
func (s *spread) follow(ctx context.Context, file string) error {
	if file == "" {
		<-ctx.Done()
		return nil
	}
	log := klog.FromContext(ctx)
	ticker := time.NewTicker(lookForAddresses)
	defer ticker.Stop()
	said := ""
	for {
		wanted, err := addressesIn(file)
		if err == nil {
			err = s.listenAt(ctx, wanted)
		}
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != said && now != "" {
			log.Error(err, "Cannot serve at all addresses of this node, trying again", "file", file)
		}
		said = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// listenAt listens at exactly these addresses besides the one that stays, as far as this machine has them.
func (s *spread) listenAt(ctx context.Context, wanted []netip.Addr) (failed error) {
	stays, err := netip.ParseAddrPort(s.Addr().String())
	if err != nil {
		return err
	}
	want := map[netip.Addr]bool{}
	for _, a := range wanted {
		want[a] = a != stays.Addr().Unmap() && !stays.Addr().IsUnspecified()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, l := range s.more {
		if !want[a] {
			failed = errors.Join(failed, l.Close())
			delete(s.more, a)
		}
	}
	for a, here := range want {
		if s.more == nil || !here || s.more[a] != nil {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(a.String(), strconv.Itoa(int(stays.Port()))))
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.more[a] = l
		s.serving.Go(func() { s.accept(l) })
		klog.FromContext(ctx).Info("Serving at another address", "address", l.Addr().String())
	}
	return failed
}

// further returns the addresses at which it listens besides the one that stays.
func (s *spread) further() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.more))
}

// addressesIn reads the addresses in a file, which need not exist.
func addressesIn(file string) (all []netip.Addr, err error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Fields(string(content)) {
		a, err := netip.ParseAddr(line)
		if err != nil {
			return nil, err
		}
		if all = append(all, a.Unmap()); len(all) > maxAddresses {
			return nil, errors.New("more addresses than a node has")
		}
	}
	return all, nil
}
