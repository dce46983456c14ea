package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/live"
)

// TestListenAll: at all ports or at none, and whoever reads the error knows which flag to change.
func TestListenAll(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	port := func(name string, at net.Addr) Port {
		number := netip.MustParseAddrPort(at.String()).Port()
		return Port{Name: name, Flag: name + "-port", Address: "127.0.0.1", Number: int(number)}
	}
	first, second := port("health", free.Addr()), port("proxy", taken.Addr())
	_, err = ListenAll(ends.Net{}, first, second)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), "--proxy-port: ") {
		t.Errorf("a port that is taken: %v", err)
	}
	all, err := ListenAll(ends.Net{}, first)
	if err != nil || len(all) != 1 || all[0].Name != "health" {
		t.Fatalf("the port that was free is not: %v, %v", all, err)
	}
	if err := CloseAll(all); err != nil {
		t.Error(err)
	}
	if again, err := net.Listen("tcp", free.Addr().String()); err != nil {
		t.Errorf("closed, the port is not free: %v", err)
	} else {
		again.Close()
	}
}

// TestRefusals are counted by their reason, and each reason is there from the start.
func TestRefusals(t *testing.T) {
	metrics := prometheus.NewRegistry()
	refused := Refusals(metrics)
	for range 10 {
		refused(netip.MustParseAddrPort("10.0.0.1:1234"), conns.Slow, errors.New("too slow"))
	}
	want := "# HELP yurthub_connections_refused_total Connections that were closed before a request, by the reason: too-many " +
		"of their address or, at kubelet's port, of those without proof; slow, broken\n" +
		"# TYPE yurthub_connections_refused_total counter\n"
	for _, each := range []struct {
		why conns.Reason
		n   string
	}{{conns.Broken, "0"}, {conns.Slow, "10"}, {conns.TooMany, "0"}} {
		want += `yurthub_connections_refused_total{reason="` + string(each.why) + `"} ` + each.n + "\n"
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestMoving: served is where the address is, and nowhere else; who is told of it is told in that order.
func TestMoving(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	taken, err := net.Listen("tcp", netip.AddrPortFrom(here, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(taken.Addr().String()).Port()
	told := make(chan string, 10)
	where := live.NewValue(netip.Addr{})
	m := Moving{
		Address: where, Port: port, What: "serving",
		Config: func() ServerConfig { return ServerConfig{Handler: http.NotFoundHandler()} },
		Serves: func(at netip.AddrPort) { told <- "serves " + at.Addr().String() },
		Fails:  func(at netip.AddrPort, _ error) { told <- "fails " + at.Addr().String() },
		Ends:   func() { told <- "ends" },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	hear := func(want string) {
		t.Helper()
		got := <-told
		for got != want && strings.HasPrefix(got, "fails ") { // it tries again
			got = <-told
		}
		if got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	}
	where.Set(here)
	hear("fails 127.0.0.1")
	where.Set(there)
	hear("serves 127.0.0.2")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	where.Set(here)
	hear("ends")
	hear("serves 127.0.0.1")
	where.Set(netip.Addr{})
	hear("ends")
	if conn, err := net.Dial("tcp", netip.AddrPortFrom(here, port).String()); err == nil {
		conn.Close()
		t.Error("it serves at an address that the node no longer has")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
