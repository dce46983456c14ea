package lead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/hub/hubtest"
)

const space = "kube-node-lease"

// diary writes down what a sink hears.
type diary struct{ heard []string }

func (d *diary) Baseline(leases []coordinationv1.Lease) {
	names := make([]string, 0, len(leases))
	for _, l := range leases {
		names = append(names, l.Name)
	}
	d.heard = append(d.heard, fmt.Sprintf("baseline %v", names))
}

func (d *diary) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	d.heard = append(d.heard, strings.ToLower(string(kind))+" "+lease.Name)
}

func (d *diary) take() []string {
	heard := d.heard
	d.heard = nil
	return heard
}

func touch(s *hubtest.LeaseServer, name string, marked bool) {
	s.Edit(space, name, func(l *coordinationv1.Lease) {
		l.Labels = map[string]string{"marked": fmt.Sprint(marked)}
	})
}

func TestFollow(t *testing.T) {
	tests := []struct {
		name string
		act  func(*hubtest.LeaseServer)
		want []string
	}{
		{"changes", func(s *hubtest.LeaseServer) {
			touch(s, "b", true)
			touch(s, "a", true)
			touch(s, "a", false)
			touch(s, "c", false)
			touch(s, "a", true)
			s.Remove(space, "b")
		}, []string{"added b", "modified a", "deleted a", "added a", "deleted b"}},
		{"a broken watch resumes where it stood, repeating nothing", func(s *hubtest.LeaseServer) {
			s.Break()
			touch(s, "b", true)
			touch(s, "a", true)
		}, []string{"added b", "modified a"}},
		{"history lost: a new baseline", func(s *hubtest.LeaseServer) {
			s.Break()
			touch(s, "b", true)
			s.Compact()
		}, []string{"baseline [a b]"}},
		{"server back empty: a new baseline, and the changes of its new history", func(s *hubtest.LeaseServer) {
			s.Restart(1)
			time.Sleep(10 * time.Second)
			touch(s, "b", true)
		}, []string{"baseline []", "added b"}},
		{"refused for a while", func(s *hubtest.LeaseServer) {
			s.Before(func(context.Context, hubtest.LeaseCall) error { return errors.New("connection refused") })
			s.Break()
			touch(s, "b", true)
			time.Sleep(time.Minute)
			s.Before(nil)
		}, []string{"added b"}},
		{"silent connection: noticed by the watch's own limit", func(s *hubtest.LeaseServer) {
			s.Hold()
			touch(s, "b", true)
			time.Sleep(watchMax + watchGrace)
			s.Flow()
		}, []string{"added b"}},
		{"every request hangs for a while", func(s *hubtest.LeaseServer) {
			s.Before(hubtest.Hang)
			s.Break()
			touch(s, "b", true)
			time.Sleep(10 * time.Minute)
			s.Before(nil)
		}, []string{"added b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := hubtest.NewLeaseServer(1000)
				touch(server, "a", true)
				var d diary
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error)
				go func() {
					done <- FollowLeases(ctx, LeaseWatchConfig{Leases: server.Leases(space), LabelSelector: "marked=true"}, &d)
				}()
				synctest.Wait()
				if got := d.take(); !slices.Equal(got, []string{"baseline [a]"}) {
					t.Fatalf("at first heard %q, want the baseline", got)
				}
				tt.act(server)
				time.Sleep(2 * (watchMax + watchGrace))
				synctest.Wait()
				if got := d.take(); !slices.Equal(got, tt.want) {
					t.Errorf("heard %q, want %q", got, tt.want)
				}
				stop := errors.New("enough")
				cancel(stop)
				if err := <-done; !errors.Is(err, stop) {
					t.Errorf("Follow = %v, want the context's cause", err)
				}
			})
		})
	}
}

// TestBeating: a watch of Leases that are renewed all the time lives on, and is found dead by its silence.
func TestBeating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(1000)
		touch(server, "a", true)
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- FollowLeases(ctx, LeaseWatchConfig{Leases: server.Leases(space), Beating: true}, &d) }()
		beats := func(n int) {
			for range n {
				time.Sleep(time.Second)
				touch(server, "a", true)
			}
			synctest.Wait()
		}
		beats(10)
		server.Calls()
		beats(600)
		if n := len(server.Calls()); n > 2*int(10*time.Minute/beatingMin) {
			t.Errorf("%d requests in 10 minutes, want two for each of the watches", n)
		}
		server.Break()
		beats(5)
		d.take()
		server.Calls()
		server.Hold()
		touch(server, "b", true)
		beats(int(watchQuiet/time.Second) + 1)
		if n := len(server.Calls()); n == 0 {
			t.Errorf("nothing was asked after a silence of %s", watchQuiet)
		}
		server.Flow()
		beats(1)
		if got := d.take(); got[0] != "added b" || slices.Contains(got, "baseline [a b]") {
			t.Errorf("heard %q after the silence, want what was missed", got)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow = %v, want the context's cause", err)
		}
	})
}

func TestServerThatEndsEveryWatchIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := hubtest.NewLeaseServer(1000)
		server.After(func(_ context.Context, c hubtest.LeaseCall) error {
			if c.Verb == "watch" {
				server.Break()
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := FollowLeases(ctx, LeaseWatchConfig{Leases: server.Leases(space)}, &diary{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Follow = %v, want the context's cause", err)
		}
		// A list and a watch per attempt; the pause grows to between half of backoffMax and backoffMax.
		if n := len(server.Calls()); n > 2*int(time.Minute/(watchBackoffMax/2))+20 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}
