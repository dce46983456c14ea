package relay

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// anHour is what hubs without a line do in an hour: each dials once a second, as upstream's detour does.
type anHour struct {
	hubs         int
	asked, tried atomic.Int64 // questions to the coordinator, connections to neighbours
	listed       atomic.Int64 // Leases that it answered with
}

func (h *anHour) pass(t *testing.T, members map[edge.NodeName]string) {
	ca := newAuthority(t)
	coordinator := pool(t, members)
	coordinator.PrependReactor("list", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		h.asked.Add(1)
		list, err := coordinator.Tracker().List(a.GetResource(), coordinationv1.SchemeGroupVersion.WithKind("Lease"), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		matching := list.(*coordinationv1.LeaseList)
		wanted := a.(clienttesting.ListAction).GetListRestrictions().Labels
		for _, l := range matching.Items {
			if wanted.Matches(labels.Set(l.Labels)) {
				h.listed.Add(1)
			}
		}
		return false, nil, nil
	})
	ctx, over := context.WithTimeout(t.Context(), time.Hour)
	defer over()
	for range h.hubs {
		c := ca.asks(t, coordinator)
		c.cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			h.tried.Add(1)
			return nil, errors.New("refused")
		}
		go func() {
			for run.Pause(ctx, 900*time.Millisecond) == nil {
				if _, err := c.DialContext(ctx, "tcp", "10.0.0.1:6443"); err == nil {
					t.Error("somebody relays")
				}
			}
		}()
	}
	<-ctx.Done()
	synctest.Wait()
}

// TestAnHourWithoutALine: what a cut costs the coordinator and the neighbours does not grow with the pool. A pause is 15 to 30 s,
// and a try comes 0 to 0.9 s after it: 3600/(22.5+0.45) = 157 in an hour, and 5 before that. Whoever is tried is tried as often.
func TestAnHourWithoutALine(t *testing.T) {
	const hubs, most = 100, 170
	everybody := map[edge.NodeName]string{}
	for _, n := range []edge.NodeName{"n2", "n3", "n4", "n5", "n6"} {
		everybody[n] = ""
	}
	t.Run("nobody relays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := anHour{hubs: hubs}
			h.pass(t, everybody)
			t.Logf("%d questions of %d hubs", h.asked.Load(), hubs)
			if got := h.asked.Load(); got > hubs*most || h.listed.Load() != 0 || h.tried.Load() != 0 {
				t.Errorf("%d questions, want at most %d; %d Leases were listed and %d neighbours tried, want none", got, hubs*most,
					h.listed.Load(), h.tried.Load())
			}
		})
	})
	t.Run("one relays, and refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			everybody["n2"] = "10.0.0.2:10269"
			h := anHour{hubs: hubs}
			h.pass(t, everybody)
			t.Logf("%d questions of %d hubs, %d tries", h.asked.Load(), hubs, h.tried.Load())
			if asked, tried := h.asked.Load(), h.tried.Load(); asked > hubs*most || tried > hubs*most || tried < hubs*100 {
				t.Errorf("%d questions and %d tries, want at most %d each", asked, tried, hubs*most)
			}
		})
	})
}
