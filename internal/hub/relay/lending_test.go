package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"yurtcoordinator/internal/edge"
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

// TestWhereANeighbourIsAsked: a neighbour's own word leads to the port where hubs relay, and to nothing of this node's.
func TestWhereANeighbourIsAsked(t *testing.T) {
	own := live.NewValue(netip.Addr{})
	l := NewLending(LendingConfig{Address: own, Dial: ownWay})
	for at, want := range map[string]bool{
		"10.0.0.2:10269": true, "[fd00::2]:10269": true, "[::ffff:10.0.0.2]:10269": true,
		"10.0.0.2:22": false, "10.0.0.2:10268": false, "127.0.0.1:10269": false, "[::1]:10269": false,
		"[::ffff:127.0.0.1]:10269": false, "169.254.169.254:10269": false, "[fe80::1%eth0]:10269": false,
		"224.0.0.1:10269": false, "0.0.0.0:10269": false, "255.255.255.255:10269": false,
	} {
		if got := l.mayBeAt(netip.MustParseAddrPort(at)); got != want {
			t.Errorf("%s: %t", at, got)
		}
	}
	own.Set(netip.MustParseAddr("127.0.0.3"))
	if !l.mayBeAt(netip.MustParseAddrPort("127.0.0.2:10269")) || l.mayBeAt(netip.MustParseAddrPort("127.0.0.2:22")) {
		t.Error("a hub at a loopback address does not find one at another")
	}
	asked := 0
	c := newAuthority(t).asks(t, pool(map[edge.NodeName]string{"n2": "10.0.0.2:22"}))
	c.cfg.May, c.cfg.Dial = l.mayBeAt, func(context.Context, string, string) (net.Conn, error) { asked++; return nil, errOwnWay }
	if _, err := c.DialContext(t.Context(), "tcp", "10.0.0.1:6443"); !errors.Is(err, errElsewhere) || asked != 0 {
		t.Errorf("%v, after %d connections", err, asked)
	}
}
