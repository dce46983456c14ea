package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// requestTimeout bounds one request: far more than any should take, far less than the run.
const requestTimeout = 10 * time.Second

// connection is one client's connection to a server.
type connection struct {
	base   string
	token  string // empty: none
	client *http.Client
}

// connect returns n connections over a way. Each opens at its first use.
func (s Spec) connect(w Way, n int) ([]connection, error) {
	access := s.access(w)
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !secure.RootCAs.AppendCertsFromPEM(access.CA) {
		return nil, errors.New("the authority's certificate cannot be read")
	}
	if access.Cert != nil {
		pair, err := tls.X509KeyPair(access.Cert, access.Key)
		if err != nil {
			return nil, fmt.Errorf("the node's certificate: %w", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	all := make([]connection, n)
	for i := range all {
		t := &http.Transport{
			DisableCompression: true, TLSClientConfig: secure.Clone(), Protocols: new(http.Protocols),
		}
		t.Protocols.SetHTTP2(w == HTTP2)
		t.Protocols.SetHTTP1(w != HTTP2)
		all[i] = connection{base: access.Server, token: access.Token, client: &http.Client{Transport: t, Timeout: requestTimeout}}
	}
	return all, nil
}

// access returns the access of a way.
func (s Spec) access(w Way) Access {
	switch w {
	case Hub:
		return s.AsKubelet
	case Proxy:
		return s.asProxy
	default:
		return s.AsNode
	}
}

// get reads path once and returns the size of the body.
func (c connection) get(ctx context.Context, path string, e Encoding) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", e.mediaType())
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	switch kind := resp.Header.Get("Content-Type"); {
	case err != nil:
		return 0, fmt.Errorf("GET %s%s: %w", c.base, path, err)
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("GET %s%s: %s", c.base, path, resp.Status)
	case !strings.HasPrefix(kind, e.mediaType()):
		return 0, fmt.Errorf("GET %s%s: answered in %s, asked for %s", c.base, path, kind, e.mediaType())
	}
	return n, nil
}

// hammer reads path repeatedly on every connection for d, and at least once.
func hammer(ctx context.Context, on []connection, path string, e Encoding, d time.Duration) (Round, error) {
	each := make([][]time.Duration, len(on))
	sizes := make([]int64, len(on))
	errs := make([]error, len(on))
	var working sync.WaitGroup
	start := time.Now()
	for i, c := range on {
		working.Go(func() {
			for began := start; ; {
				n, err := c.get(ctx, path, e)
				if err != nil {
					errs[i] = err
					return
				}
				now := time.Now()
				each[i] = append(each[i], now.Sub(began))
				sizes[i] += n
				if began = now; now.Sub(start) >= d {
					return
				}
			}
		})
	}
	working.Wait()
	r := Round{Elapsed: time.Since(start)}
	var all []time.Duration
	for i := range on {
		all = append(all, each[i]...)
		r.Bytes += sizes[i]
	}
	r.Requests, r.Latency = len(all), quantiles(all)
	return r, errors.Join(errs...)
}

// alternate runs each round on every way. The order of the ways shifts by one from round to round.
func alternate(ctx context.Context, rounds int, ways []Way, do func(Way) (Round, error)) (Trial, error) {
	t := Trial{}
	for i := range rounds {
		for j := range ways {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			w := ways[(i+j)%len(ways)]
			r, err := do(w)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", w, i+1, err)
			}
			t[w] = append(t[w], r)
		}
	}
	return t, nil
}

// reading is a load of GETs.
type reading struct {
	path        string
	encoding    Encoding
	connections int
	rounds      int
	each        time.Duration // of one round
}

// gets measures a reading on every way, after a first request on each connection. around runs each round.
func (l *load) gets(
	ctx context.Context, r reading, around func(run func() (Round, error)) (Round, error),
) (Trial, error) {
	on := map[Way][]connection{}
	ways := []Way{HTTP2, HTTP1, Proxy, Hub}
	for _, w := range ways {
		connections, err := l.spec.connect(w, r.connections)
		if err != nil {
			return nil, err
		}
		defer func() {
			for _, c := range connections {
				c.client.CloseIdleConnections()
			}
		}()
		if _, err := hammer(ctx, connections, r.path, r.encoding, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", w, err)
		}
		on[w] = connections
	}
	return alternate(ctx, r.rounds, ways, func(w Way) (Round, error) {
		return around(func() (Round, error) { return hammer(ctx, on[w], r.path, r.encoding, r.each) })
	})
}

// uncounted runs a round.
func uncounted(run func() (Round, error)) (Round, error) { return run() }

// counted runs a round and counts the processor time that it takes.
func (l *load) counted(run func() (Round, error)) (Round, error) {
	var before, after [4]time.Duration
	count := func(into *[4]time.Duration) (err error) {
		for i, pid := range []int{l.hub, l.proxy, l.server, os.Getpid()} {
			var failure error
			into[i], failure = processorTime(pid)
			err = errors.Join(err, failure)
		}
		return err
	}
	if err := count(&before); err != nil {
		return Round{}, err
	}
	r, err := run()
	err = errors.Join(err, count(&after))
	for i, took := range []*time.Duration{&r.Hub, &r.Proxy, &r.Server, &r.Client} {
		*took = after[i] - before[i]
	}
	return r, err
}

// Get returns what a server answers to a GET. Any status but 200 is an error.
func Get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	return content, err
}
