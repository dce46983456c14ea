package heartbeat

import (
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// runWithStandby gives a test a node whose pool has two coordinators.
func runWithStandby(t *testing.T, test func(*node)) {
	t.Helper()
	run(t, func(n *node) {
		n.standby, n.standbyLink = hubtest.NewLeaseServer(700), live.NewValue(link.Up)
		n.restartHub()
		defer n.standby.Before(nil)
		test(n)
	})
}

// wantAtStandby checks the standby's copy.
func (n *node) wantAtStandby(mark bool) {
	n.t.Helper()
	synctest.Wait()
	l := n.standby.Peek(space, n.name)
	if l == nil {
		n.t.Fatal("the standby has no copy")
	}
	if a, b := delegatedLease(l); a != mark || b != mark || !renewTime(l).Equal(renewTime(n.lease)) {
		n.t.Errorf("the standby's copy: annotation=%v label=%v, want both %v; stamped %s, kubelet's last is %s", a, b, mark,
			renewTime(l), renewTime(n.lease))
	}
}

func TestEachCoordinatorHasACopy(t *testing.T) {
	runWithStandby(t, func(n *node) {
		n.mustBeat()
		n.wantCloud()
		n.wantCopy(false)
		n.wantAtStandby(false)
		n.cloudLink.Set(link.Down)
		n.mustBeat()
		n.wantCopy(true)
		n.wantAtStandby(true)

		n.standbyLink.Set(link.Down)
		n.standby.Calls()
		n.mustBeat()
		n.wantCopy(true)
		if calls := n.standby.Calls(); len(calls) > 0 {
			t.Errorf("a standby that can't be reached was asked: %v", calls)
		}
		n.standbyLink.Set(link.Up)
		n.coordinatorLink.Set(link.Down)
		n.mustBeat()
		n.wantAtStandby(true)
		n.standbyLink.Set(link.Down)
		if err := n.beat(); err == nil {
			t.Error("kubelet hears of a success that nobody had")
		}
	})
}

// TestOneCoordinatorIsEnough: while one hangs that is dead and not known to be, another one's word is kubelet's answer.
func TestOneCoordinatorIsEnough(t *testing.T) {
	for name, broken := range map[string]func(*node) *hubtest.LeaseServer{
		"home hangs":        func(n *node) *hubtest.LeaseServer { return n.coordinator },
		"the standby hangs": func(n *node) *hubtest.LeaseServer { return n.standby },
	} {
		t.Run(name, func(t *testing.T) {
			runWithStandby(t, func(n *node) {
				n.cloudLink.Set(link.Down)
				broken(n).Before(hubtest.Hang)
				began := time.Now()
				n.mustBeat()
				if took := time.Since(began); took != 0 {
					t.Errorf("the heartbeat waited %s", took)
				}
				n.coordinator.Before(hubtest.Hang)
				n.standby.Before(hubtest.Hang)
				if err := n.beat(); err == nil {
					t.Error("kubelet hears of a success that nobody had")
				}
			})
		})
	}
}

// TestAnyCoordinatorRemembersTheLease: a hub that starts in a cut learns the Lease from whichever coordinator has it.
func TestAnyCoordinatorRemembersTheLease(t *testing.T) {
	runWithStandby(t, func(n *node) {
		n.mustBeat()
		synctest.Wait()
		n.cloudLink.Set(link.Down)
		n.coordinator.Restart(1) // it is empty
		n.restartHub()
		got, err := n.do("GET", nil, "")
		if err != nil || got.UID != n.cloud.Peek(space, n.name).UID {
			t.Errorf("%v, %v", got, err)
		}
		n.standby.Restart(1)
		n.restartHub()
		if got, err := n.do("GET", nil, ""); err == nil {
			t.Errorf("nobody knows of it, and kubelet is told %v", got)
		}
	})
}
