package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/machine"
)

// follower is somebody who follows a boot; said returns what it was told so far.
type follower struct {
	told *httptest.ResponseRecorder
	done chan struct{}
}

func follow(ctx context.Context, s *steps) *follower {
	f := &follower{told: httptest.NewRecorder(), done: make(chan struct{})}
	go func() {
		defer close(f.done)
		s.stream(f.told, httptest.NewRequestWithContext(ctx, http.MethodGet, "/boot", nil))
	}()
	return f
}

func (f *follower) said(t *testing.T) []Step {
	t.Helper()
	var all []Step
	for d := json.NewDecoder(strings.NewReader(f.told.Body.String())); ; {
		var s Step
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
}

func (f *follower) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func TestStepsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSteps()
		early := follow(t.Context(), s)
		synctest.Wait()
		if said := early.said(t); len(said) != 0 || early.ended() || s.booted() {
			t.Fatalf("before the first step: %+v", said)
		}
		time.Sleep(time.Second) // of the bubble's clock
		s.add("laid")
		synctest.Wait()
		if said := early.said(t); !slices.Equal(said, []Step{{At: time.Second, Text: "laid"}}) || !early.told.Flushed {
			t.Errorf("after one step: %+v", said)
		}
		// Whoever goes before the end is let go.
		gone, leave := context.WithCancel(t.Context())
		impatient := follow(gone, s)
		synctest.Wait()
		leave()
		<-impatient.done

		time.Sleep(time.Second)
		s.end(nil)
		<-early.done
		all := []Step{{At: time.Second, Text: "laid"}, {At: 2 * time.Second, Done: true}}
		if said := early.said(t); !slices.Equal(said, all) || !s.booted() {
			t.Errorf("after the end: %+v", said)
		}
		s.add("the cloud is powered on again")
		late := follow(t.Context(), s)
		<-late.done
		if said := late.said(t); !slices.Equal(said, all) {
			t.Errorf("somebody late is told %+v", said)
		}
	})
}

// The client shows what the boot said, and returns its error.
func TestFailedBoot(t *testing.T) {
	s := newSteps()
	s.add("laid")
	s.end(errors.New("no power"))
	if s.booted() {
		t.Error("booted, after an error")
	}
	c := newClient(t.TempDir())
	c.http = clientOf(t, http.HandlerFunc(s.stream))
	var seen []string
	err := c.follow(t.Context(), func(s Step) { seen = append(seen, s.Text+s.Error) })
	if err == nil || err.Error() != "no power" || !slices.Equal(seen, []string{"laid", "no power"}) {
		t.Errorf("%v, %q", err, seen)
	}
}

// A lab that dies while it boots says no last step.
func TestBootThatBreaksOff(t *testing.T) {
	c := newClient(t.TempDir())
	c.http = clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(Step{Text: "laid"})
	}))
	err := c.follow(t.Context(), func(Step) {})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(c.dir, logFile)) {
		t.Errorf("%v, want the way to its log", err)
	}
}

// clientOf is an HTTP client whose every request goes to handler.
func clientOf(t *testing.T, handler http.Handler) *http.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// Orders from people: what is wrong with them comes back as it is, and nothing is done before the lab is up.
func TestOrdersAreRefused(t *testing.T) {
	l := newLab(Config{Name: "x", Pools: 1, Nodes: 2, Kubelet: Hollow}, t.TempDir(), build.Binaries{}, Images{})
	for _, p := range l.all {
		l.hosts[string(p.name())] = &host{spec: machine.Spec{Name: string(p.name())}}
	}
	l.hosts[cloudMachine] = &host{spec: machine.Spec{Name: cloudMachine}}
	s := &server{lab: l, log: newSteps(), stop: func() {}}
	c := newClient(t.TempDir())
	c.http = clientOf(t, s.routes(t.Context()))
	order := func(path string, q url.Values) error { return c.call(t.Context(), http.MethodPost, path, q, nil) }

	if err := order("mark", nil); err == nil || err.Error() != "the lab is not up yet" {
		t.Errorf("before the boot has ended: %v", err)
	}
	s.log.end(nil)
	if err := order("mark", nil); err != nil {
		t.Errorf("after: %v", err)
	}
	for _, tt := range []struct {
		path string
		q    url.Values
		want string
	}{
		{"link", url.Values{"network": {"vpn"}}, `unknown network "vpn"`},
		{"link", url.Values{"network": {"wan"}, "mode": {"slow"}}, `unknown mode "slow"`},
		{"link", url.Values{"network": {"wan"}, "target": {"p1-n3"}}, `no node or pool "p1-n3"`},
		{"node", url.Values{"action": {"kill"}, "node": {"p2-n1"}},
			`no node "p2-n1" in this lab: want one of p1-n1 … p1-n2`},
		{"node", url.Values{"action": {"kill"}, "node": {"p1-n2"}, "component": {"coordinator"}},
			"p1-n2 has no coordinator"},
		{"node", url.Values{"action": {"kill"}, "node": {"p1-n1"}, "component": {"hub"}}, "yurtlab node start p1-n1"},
		{"cloud", url.Values{"action": {"kill"}, "component": {"etcd"}}, "yurtlab cloud start all"},
		{"cloud", url.Values{"action": {"kill"}, "component": {"hub"}}, "the cloud has no hub: want one of etcd"},
		{"cloud", url.Values{"action": {"kill"}, "component": {"etcd"}, "flag": {"--v=1"}}, "only the start of one program"},
		{"cloud", url.Values{"action": {"start"}, "component": {"all"}, "flag": {"--v=1"}}, "only the start of one program"},
		{"cloud", url.Values{"action": {"start"}, "component": {"etcd"}, "flag": {"v=1"}}, "want --name=value"},
	} {
		if err := order(tt.path, tt.q); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v: %v, want %q", tt.path, tt.q, err, tt.want)
		}
	}
	var pid int
	err := c.call(t.Context(), http.MethodGet, "pid", url.Values{"machine": {"p1-n1"}}, &pid)
	if err == nil || err.Error() != "p1-n1 has no power" {
		t.Errorf("pid of a machine without power: %d, %v", pid, err)
	}
}

// dials serves connections into a lab without machines, and returns its client.
func dials(t *testing.T) *Client {
	t.Helper()
	c := newClient(t.TempDir())
	l, err := net.Listen("unix", filepath.Join(c.dir, dialFile))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&server{lab: newLab(Config{}, c.dir, build.Binaries{}, Images{})}).serveDials(ctx, l)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// listen serves one connection at a time on a loopback port and returns its address.
func listen(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// One side may have said all while the other still talks.
func TestDialKeepsHalfClosedConnectionsOpen(t *testing.T) {
	address := listen(t, func(conn *net.TCPConn) {
		said, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		_, _ = conn.Write(append([]byte("you said "), said...))
	})
	conn, err := dials(t).Dial(t.Context(), "", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	half, ok := conn.(*bufferedConn).Conn.(*net.UnixConn)
	if !ok {
		t.Fatalf("a connection of type %T", conn)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "you said hello" {
		t.Errorf("%q, %v", answer, err)
	}
}

// A peer that speaks first, at once: what it says right behind the "ok" is not lost.
func TestDialKeepsWhatIsReadAhead(t *testing.T) {
	address := listen(t, func(conn *net.TCPConn) { _, _ = io.WriteString(conn, "220 ready\n") })
	conn, err := dials(t).Dial(t.Context(), "", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if said, err := io.ReadAll(conn); err != nil || string(said) != "220 ready\n" {
		t.Errorf("%q, %v", said, err)
	}
}

// A caller that goes takes the connection with it: the peer, which only writes, finds out.
func TestDialEndsWithItsCaller(t *testing.T) {
	ended := make(chan error, 1)
	address := listen(t, func(conn *net.TCPConn) {
		for {
			if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
				ended <- err
				return
			}
		}
	})
	conn, err := dials(t).Dial(t.Context(), "", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	conn.Close()
	if err := <-ended; err == nil {
		t.Error("the peer went on")
	}
}

func TestDialTellsWhyNot(t *testing.T) {
	c := dials(t)
	_, err := c.Dial(t.Context(), "p1-n1", "127.0.0.1:1")
	if err == nil || err.Error() != `no machine "p1-n1" in this lab` {
		t.Errorf("a machine that is not there: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	if _, err := c.Dial(t.Context(), "", nobody); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a port that nobody serves: %v", err)
	}
}
