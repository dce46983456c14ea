package upstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"yurtcoordinator/internal/hub/link"
)

// written notes each Write.
type written struct {
	all []string
	err error
}

func (w *written) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return len(p), w.err
}

// frames returns the bytes of what do writes.
func frames(t *testing.T, do func(f *http2.Framer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := do(http2.NewFramer(&b, nil)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func headers(t *testing.T, of http2.HeadersFrameParam) []byte {
	of.StreamID = 1
	return frames(t, func(f *http2.Framer) error { return f.WriteHeaders(of) })
}

func TestBodyFollows(t *testing.T) {
	put := headers(t, http2.HeadersFrameParam{BlockFragment: []byte("abc"), EndHeaders: true})
	for name, test := range map[string]struct {
		of   []byte
		want bool
	}{
		"headers of a PUT":      {put, true},
		"of a GET":              {headers(t, http2.HeadersFrameParam{EndHeaders: true, EndStream: true}), false},
		"more headers follow":   {headers(t, http2.HeadersFrameParam{BlockFragment: []byte("abc")}), false},
		"half a frame":          {put[:len(put)-1], false},
		"two frames":            {slices.Concat(put, put), false},
		"less than its head":    {put[:8], false},
		"a ping":                {frames(t, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }), false},
		"the end of a body":     {frames(t, func(f *http2.Framer) error { return f.WriteData(1, true, nil) }), false},
		"what HTTP/2 begins by": {[]byte(http2.ClientPreface), false},
	} {
		if got := bodyFollows(test.of); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestHeadersWaitForTheirBody: frames keep their order, and headers whose body is late are not late themselves.
func TestHeadersWaitForTheirBody(t *testing.T) {
	put := string(headers(t, http2.HeadersFrameParam{BlockFragment: []byte("abc"), EndHeaders: true}))
	get := string(headers(t, http2.HeadersFrameParam{EndHeaders: true, EndStream: true}))
	for name, test := range map[string]struct {
		do   func(j *joiner)
		want []string
	}{
		"the body at once": {func(j *joiner) { say(t, j, put, "body", get) }, []string{put + "body", get}},
		"two requests":     {func(j *joiner) { say(t, j, put, put, "body", "body") }, []string{put + put, "body", "body"}},
		"a late body": {func(j *joiner) {
			say(t, j, put)
			time.Sleep(joinFor)
			synctest.Wait()
			say(t, j, "body")
			time.Sleep(time.Second)
			say(t, j, put, "body")
		}, []string{put, "body", put + "body"}},
		"the end": {func(j *joiner) {
			say(t, j, get, put)
			j.end()
			time.Sleep(time.Second)
		}, []string{get}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &written{}
				test.do(&joiner{to: to})
				if synctest.Wait(); !slices.Equal(to.all, test.want) {
					t.Errorf("written %q, want %q", to.all, test.want)
				}
			})
		})
	}
}

func say(t *testing.T, j *joiner, all ...string) {
	t.Helper()
	for _, s := range all {
		if n, err := j.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
	}
}

func TestHeadersThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		j := &joiner{to: &written{err: broken}}
		say(t, j, string(headers(t, http2.HeadersFrameParam{EndHeaders: true})))
		time.Sleep(joinFor)
		synctest.Wait()
		if n, err := j.Write([]byte("body")); n != 0 || !errors.Is(err, broken) {
			t.Errorf("Write() = %d, %v, want the error of the headers", n, err)
		}
	})
}

// countingConn counts writes.
type countingConn struct {
	net.Conn
	mu     sync.Mutex
	writes int
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *countingConn) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// TestAHeartbeatIsOnePacket: its headers and its body are one write on a connection that is there.
func TestAHeartbeatIsOnePacket(t *testing.T) {
	ca := newAuthority(t)
	s := ca.serve(t, func(http.ResponseWriter, *http.Request) {}, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	wires := make(chan *countingConn, 10)
	dial := Dial
	cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &countingConn{Conn: raw}
		wires <- c
		return c, nil
	}
	u := start(t, cfg)
	await(t, u, link.Up)
	beat := func() {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://cloud"+ownLease, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := u.AsNode().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	beat()
	urgent := <-wires
	fewest := 100
	for range 20 { // a ping or the acknowledgement of a setting may come between
		before := urgent.count()
		beat()
		fewest = min(fewest, urgent.count()-before)
	}
	if fewest != 1 {
		t.Errorf("a heartbeat took %d writes at least, want one", fewest)
	}
}
