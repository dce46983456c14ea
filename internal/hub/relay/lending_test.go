package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"yurtcoordinator/internal/hub/upstream"
	"yurtcoordinator/internal/live"
)

var errOwnWay = errors.New("the hub's own way")

func ownWay(context.Context, string, string) (net.Conn, error) { return nil, errOwnWay }

// TestWhatIsLentFollowsTheSettings while the hub runs: whoever borrows nothing lends nothing.
func TestWhatIsLentFollowsTheSettings(t *testing.T) {
	l := NewLending(LendingConfig{Address: live.NewValue(netip.Addr{}), Dial: ownWay})
	if l.use.Get() != upstream.ForNothing || l.lends.Get() {
		t.Errorf("before anything is said it borrows for %v, and lends: %t", l.use.Get(), l.lends.Get())
	}
	for _, tt := range []struct {
		borrows upstream.Use
		metered bool
		lends   bool
		limits  Limits
	}{
		{upstream.ForSome, true, true, Metered()},
		{upstream.ForAll, false, true, Standard()},
		{upstream.ForNothing, true, false, Metered()},
		{upstream.ForNothing, false, false, Standard()},
	} {
		l.Change(tt.borrows, tt.metered)
		if l.use.Get() != tt.borrows || l.lends.Get() != tt.lends || l.limits.Get() != tt.limits {
			t.Errorf("%+v: it borrows for %v, lends: %t, at most %+v", tt, l.use.Get(), l.lends.Get(), l.limits.Get())
		}
		if d := l.Detour(); d == nil || d.Use.Get() != tt.borrows {
			t.Errorf("%+v: the detour is %+v", tt, d)
		}
	}
}

// TestWhoCannotLend: a hub that neighbours cannot reach, or that reaches no coordinator, uses its own way to the cloud, and
// reports no address for relaying.
func TestWhoCannotLend(t *testing.T) {
	l := NewLending(LendingConfig{Dial: ownWay})
	l.Change(upstream.ForAll, false)
	if l.Possible() || l.Detour() != nil || l.By() != "" || l.RelaysAt() != "" || l.Neighbours() != 0 {
		t.Errorf("possible: %t, by %q, at %q, for %d", l.Possible(), l.By(), l.RelaysAt(), l.Neighbours())
	}
	if _, err := l.DialContext(t.Context(), "tcp", "10.0.0.1:6443"); !errors.Is(err, errOwnWay) {
		t.Errorf("it dials by %v", err)
	}
}
