package oversee

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/leasewatch/leasetest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/live"
)

const space = corev1.NamespaceNodeLease

// site is a pool whose nodes are delegated, with one follower that checks on the leader.
type site struct {
	t                  *testing.T
	cloud, coordinator *leasetest.Server
	link               *live.Value[link.State]
	standing           *live.Value[role.Standing]
	overseer           *Overseer
	accused            []role.Standing
	forwards           func(node string) bool // what the leader does
	clock              time.Duration          // how far the nodes' clocks are ahead
}

func onSite(t *testing.T, test func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{
			t: t, cloud: leasetest.New(5000), coordinator: leasetest.New(10), link: live.NewValue(link.Up),
			standing: live.NewValue(role.Standing{Role: role.Follower, Leader: "leader", Transitions: 3}),
			forwards: func(string) bool { return false },
		}
		s.overseer = New(Config{
			Node: "self", Coordinator: s.coordinator.Client("self"), Cloud: s.cloud.Client("self"), CloudLink: s.link,
			Standing: s.standing, Metrics: prometheus.NewRegistry(),
			Accuse: func(_ context.Context, term role.Standing) error {
				s.accused = append(s.accused, term)
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := s.overseer.Run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
		}()
		test(s)
		s.cloud.Before(nil)
		cancel()
		<-done
	})
}

// beat is a delegated node's heartbeat, and what the leader makes of it.
func (s *site) beat(name string) {
	write := func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(s.clock)}
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &name, new(int32(40))
		metav1.SetMetaDataLabel(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	}
	s.coordinator.Edit(space, name, write)
	synctest.Wait()
	if s.forwards(name) {
		s.cloud.Edit(space, name, write)
	}
}

// pass lets nodes renew every ten seconds, so many times.
func (s *site) pass(times int, nodes ...string) {
	for range times {
		for _, n := range nodes {
			s.beat(n)
		}
		time.Sleep(10 * time.Second)
	}
	synctest.Wait()
}

func (s *site) checks(result string) float64 {
	return testutil.ToFloat64(s.overseer.checks.WithLabelValues(result))
}

func TestAnIdleLeaderIsAccused(t *testing.T) {
	onSite(t, func(s *site) {
		s.pass(3, "n1")
		if len(s.accused) != 1 || s.accused[0] != s.standing.Get() {
			t.Errorf("accused %v after half a minute, want the leader", s.accused)
		}
		if got := s.checks("missing"); got != 1 {
			t.Errorf("%v missing", got)
		}
	})
}

func TestAnHonestLeaderIsNot(t *testing.T) {
	for name, prepare := range map[string]func(*site){
		"which forwards":           func(s *site) { s.forwards = func(string) bool { return true } },
		"with clocks an hour back": func(s *site) { s.forwards = func(string) bool { return true }; s.clock = -time.Hour },
		"while this hub can't read": func(s *site) {
			s.cloud.Before(func(context.Context, leasetest.Call) error { return errors.New("403") })
		},
		"while this hub's link is down":  func(s *site) { s.link.Set(link.Down) },
		"while this hub leads":           func(s *site) { s.standing.Set(role.Standing{Role: role.Leader, Leader: "self"}) },
		"while nobody leads":             func(s *site) { s.standing.Set(role.Standing{Role: role.Follower}) },
		"while this hub itself is shown": func(s *site) { s.standing.Set(role.Standing{Role: role.Follower, Leader: "self"}) },
	} {
		t.Run(name, func(t *testing.T) {
			onSite(t, func(s *site) {
				prepare(s)
				s.pass(30, "n1", "n2", "n3")
				if len(s.accused) > 0 {
					t.Errorf("accused %v", s.accused)
				}
				if s.checks("forwarded") > 0 && len(s.cloud.Calls()) > 40 {
					t.Error("more than 40 requests in five minutes")
				}
			})
		})
	}
}

// What proves nothing: a node that is dead, what a list found, the first renewal, and a term that has changed.
func TestWhatIsNoEvidence(t *testing.T) {
	onSite(t, func(s *site) {
		s.pass(2, "n1")
		time.Sleep(5 * time.Minute) // n1 is dead
		s.coordinator.Restart(1)
		s.pass(1, "n1")
		for i := range int32(10) {
			s.standing.Set(role.Standing{Role: role.Follower, Leader: "other", Transitions: 4 + i})
			s.pass(2, "n1")
		}
		if len(s.accused) > 0 {
			t.Errorf("accused %v", s.accused)
		}
		if calls := s.cloud.Calls(); len(calls) == 0 {
			t.Error("it never began to look")
		}
	})
}

// A leader that leaves out one of some nodes is found out as well.
func TestALeaderThatLeavesOneOut(t *testing.T) {
	onSite(t, func(s *site) {
		s.forwards = func(node string) bool { return node != "n2" }
		for i := 0; len(s.accused) == 0; i++ {
			if i > 200 {
				t.Fatalf("not accused in %s; %v checks", fmt.Sprint(i*10, " s"), s.checks("forwarded"))
			}
			s.pass(1, "n1", "n2", "n3")
		}
	})
}

// Nobody delegated: nothing is asked of the cloud.
func TestQuiet(t *testing.T) {
	onSite(t, func(s *site) {
		time.Sleep(time.Hour)
		if calls := s.cloud.Calls(); len(calls) > 0 {
			t.Errorf("asked the cloud %v", calls)
		}
	})
}
