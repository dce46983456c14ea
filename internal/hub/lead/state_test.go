package lead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

const space = "kube-node-lease"

// stateOf returns what a server tells a client.
func stateOf(server *hubtest.LeaseServer, client string, reached *live.Value[link.State]) *State {
	return NewState(StateConfig{Link: reached, Transport: server.State(client), Base: hubtest.At})
}

// follow returns what a server tells, until the test ends.
func follow(t *testing.T, server *hubtest.LeaseServer) *State {
	s := stateOf(server, "", live.NewValue(link.Up))
	go func() { _ = s.Run(t.Context()) }()
	synctest.Wait()
	return s
}

// diary writes down what a sink hears.
type diary struct{ heard []string }

func (d *diary) Baseline(leases []coordinationv1.Lease) {
	names := make([]string, 0, len(leases))
	for _, l := range leases {
		names = append(names, l.Name)
	}
	d.heard = append(d.heard, fmt.Sprintf("baseline %v", names))
}

func (d *diary) Changed(lease *coordinationv1.Lease) {
	d.heard = append(d.heard, "changed "+lease.Name)
}

func (d *diary) take() []string {
	heard := d.heard
	d.heard = nil
	return heard
}

func touch(s *hubtest.LeaseServer, name string) {
	s.Edit(space, name, func(*coordinationv1.Lease) {})
	synctest.Wait()
}

// TestHeartbeats: a sink hears a baseline first, and then each change once.
func TestHeartbeats(t *testing.T) {
	tests := []struct {
		name string
		act  func(*hubtest.LeaseServer)
		want []string
	}{
		{"changes", func(s *hubtest.LeaseServer) {
			touch(s, "b")
			touch(s, "a")
			touch(s, "a")
			s.Remove(space, "b")
		}, []string{"changed b", "changed a", "changed a", "baseline [a]"}},
		{"a broken stream resumes where it stood, repeating nothing", func(s *hubtest.LeaseServer) {
			s.Break()
			touch(s, "b")
			touch(s, "a")
		}, []string{"changed b", "changed a"}},
		{"what it knew is lost: a new baseline", func(s *hubtest.LeaseServer) {
			s.Break()
			touch(s, "b")
			s.Compact()
		}, []string{"baseline [a b]"}},
		{"server back empty: a new baseline, and the changes of its new history", func(s *hubtest.LeaseServer) {
			s.Restart(1)
			time.Sleep(10 * time.Second)
			touch(s, "b")
		}, []string{"baseline []", "changed b"}},
		{"refused for a while", func(s *hubtest.LeaseServer) {
			s.Before(func(context.Context, hubtest.LeaseCall) error { return errors.New("connection refused") })
			s.Break()
			touch(s, "b")
			time.Sleep(time.Minute)
			s.Before(nil)
		}, []string{"changed b"}},
		{"silent connection: noticed by its silence", func(s *hubtest.LeaseServer) {
			s.Hold()
			touch(s, "b")
			time.Sleep(silentFor)
			s.Flow()
		}, []string{"changed b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := hubtest.NewLeaseServer(1000)
				touch(server, "a")
				var d diary
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				state := follow(t, server)
				go func() {
					defer close(done)
					state.Heartbeats(ctx, &d)
				}()
				synctest.Wait()
				if got := d.take(); !slices.Equal(got, []string{"baseline [a]"}) {
					t.Fatalf("at first heard %q, want the baseline", got)
				}
				tt.act(server)
				time.Sleep(2 * silentFor)
				synctest.Wait()
				if got := d.take(); !slices.Equal(got, tt.want) {
					t.Errorf("heard %q, want %q", got, tt.want)
				}
				cancel()
				<-done
				touch(server, "a")
				if got := d.take(); len(got) > 0 {
					t.Errorf("after its end it hears %q", got)
				}
			})
		})
	}
}

// TestSightings: what was there when a stream began is told apart from what was seen to change, and nothing is known of a
// coordinator that is not reached.
func TestSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, reached := hubtest.NewLeaseServer(1000), live.NewValue(link.Up)
		state := stateOf(server, "n1", reached)
		go func() { _ = state.Run(t.Context()) }()
		is := func(what, want string) {
			t.Helper()
			synctest.Wait()
			var said []string
			for _, value := range []*live.Value[Sighting]{state.Election(), state.Declared()} {
				text, s := "unknown", value.Get()
				if s.Known {
					text = "none"
				}
				if s.Lease != nil {
					text = s.Lease.ResourceVersion
				}
				said = append(said, text+map[bool]string{true: " found"}[s.Found])
			}
			if got := strings.Join(said, ", "); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		write := func(name string) {
			server.Edit(edge.NamespaceSystem, name, func(*coordinationv1.Lease) {})
		}
		is("at first", "none found, none found")
		write(edge.LeaseElection)
		is("one is written", "1001, none found")
		write(edge.LeaseInformerSync)
		write("another")
		is("the other is written", "1001, 1002")
		server.Break()
		time.Sleep(pauseMin)
		is("a new stream", "1001 found, 1002 found")
		server.Remove(edge.NamespaceSystem, edge.LeaseElection)
		is("one is deleted", "none found, 1002 found")
		reached.Set(link.Down)
		is("it is not reached", "unknown, unknown")
		reached.Set(link.Up)
		is("it is reached again", "none found, 1002 found")
		if n := len(server.Calls()); n != 3 {
			t.Errorf("%d requests for three streams", n)
		}
	})
}

// TestOneStream: it lives on, and is found dead by its silence.
func TestOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(1000)
		follow(t, server)
		for range 600 {
			time.Sleep(time.Second)
			touch(server, "a")
		}
		if n := len(server.Calls()); n != 1 {
			t.Errorf("%d requests in 10 minutes, want one", n)
		}
		server.Hold()
		time.Sleep(silentFor + pauseMin)
		synctest.Wait()
		if n := len(server.Calls()); n != 1 {
			t.Errorf("%d requests after a silence of %s, want one", n, silentFor)
		}
	})
}

func TestServerThatEndsEveryStreamIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(1000)
		server.Before(func(context.Context, hubtest.LeaseCall) error { return errors.New("not now") })
		follow(t, server)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(server.Calls()); n < 300 || n > 600 { // by pauses of one to two seconds
			t.Errorf("it was asked %d times in 10 minutes", n)
		}
	})
}

// telling is a coordinator that answers as it is told to.
type telling struct {
	code    int
	to      *io.PipeWriter
	queries []string
}

func (c *telling) RoundTrip(r *http.Request) (*http.Response, error) {
	from, to := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = from.CloseWithError(context.Cause(r.Context())) })
	if c.to, c.queries = to, append(c.queries, r.URL.RawQuery); c.code != http.StatusOK {
		_ = to.Close()
	}
	return &http.Response{StatusCode: c.code, Body: from}, nil
}

// TestACoordinatorThatDoesNotTell is asked again, and not all the time.
func TestACoordinatorThatDoesNotTell(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			c := &telling{code: code}
			state := NewState(StateConfig{Link: live.NewValue(link.Up), Transport: c, Base: hubtest.At})
			go func() { _ = state.Run(t.Context()) }()
			if code != http.StatusOK {
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := len(c.queries); n < 300 || n > 600 { // by pauses of one to two seconds
					t.Errorf("it was asked %d times in 10 minutes", n)
				}
				return
			}
			synctest.Wait()
			time.Sleep(openFor + pauseMax) // it tells nothing
			synctest.Wait()
			if len(c.queries) != 2 {
				t.Errorf("it was asked %d times", len(c.queries))
			}
			if _, err := io.WriteString(c.to, "hello\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pauseMax)
			synctest.Wait()
			if len(c.queries) != 3 {
				t.Errorf("after rubbish it was asked %d times", len(c.queries))
			}
		})
	}
}

// TestWhoFollowsPodsHearsOfThem: the coordinator is asked for what somebody follows, and nobody hears a line for another.
func TestWhoFollowsPodsHearsOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &telling{code: http.StatusOK}
		state := NewState(StateConfig{Link: live.NewValue(link.Up), Transport: c, Base: hubtest.At})
		go func() { _ = state.Run(t.Context()) }()
		lines := 0
		listen := func(pods bool) (stop context.CancelFunc) {
			ctx, stop := context.WithCancel(t.Context())
			go state.Presence(ctx, pods, func(edge.State) { lines++ })
			synctest.Wait()
			return stop
		}
		tell := func() {
			if _, err := io.WriteString(c.to, `{"instance":"i"}`+"\n"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		synctest.Wait()
		tell()
		stop := listen(false)
		tell()
		stop()
		synctest.Wait()
		tell()
		stop = listen(true)
		tell()
		tell()
		stop()
		synctest.Wait()
		if want := []string{"", "presence=nodes", "", "presence=pods", ""}; !slices.Equal(c.queries, want) || lines != 3 {
			t.Errorf("it was asked %q, and %d lines were heard", c.queries, lines)
		}
	})
}
