package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/internal/lab/wire"
)

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		place                         place
		name, wan, lan, pods, lanSelf string
	}{
		{place{1, 1}, "p1-n1", "10.77.1.1", "10.78.1.1", "10.129.1.0/24", "10.78.1.254/24"},
		{place{2, 3}, "p2-n3", "10.77.2.3", "10.78.2.3", "10.130.3.0/24", "10.78.2.254/24"},
		{place{MaxPools, MaxNodes}, "p50-n250", "10.77.50.250", "10.78.50.250", "10.178.250.0/24", "10.78.50.254/24"},
	} {
		p := tt.place
		got := []string{
			string(p.name()), p.wan().String(), p.lan().String(), p.pods().String(), lanSelf(p.pool).String(),
		}
		if want := []string{tt.name, tt.wan, tt.lan, tt.pods, tt.lanSelf}; !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", p, got, want)
		}
	}
}

// The largest lab there may be: every address once, in its network, apart from those of the lab itself, and every name
// of an interface one that the kernel takes.
func TestLargestLab(t *testing.T) {
	const maxInterfaceName = 15
	if inCloud.internal(Config{}) != cloudWAN || inCloud.name() != cloudMachine || inCloud.pods().String() != "10.128.0.0/24" {
		t.Errorf("the cloud's node is %s at %s with Pods %s", inCloud.name(), inCloud.internal(Config{}), inCloud.pods())
	}
	taken := map[netip.Addr]string{cloudWAN: "the cloud", labWAN: "the lab"}
	for p := 1; p <= MaxPools; p++ {
		taken[lanSelf(p).Addr()] = "the lab"
	}
	ports, pods := map[string]bool{}, map[netip.Prefix]bool{inCloud.pods(): true}
	everyPod, services := netip.MustParsePrefix(podsCIDR), netip.MustParsePrefix(serviceCIDR)
	all := (Config{Pools: MaxPools, Nodes: MaxNodes}).places()
	if len(all) != MaxPools*MaxNodes || all[0] != (place{1, 1}) || all[1] != (place{1, 2}) {
		t.Fatalf("%d places, from %v", len(all), all[:2])
	}
	for _, p := range all {
		for _, c := range []wire.Cable{p.wanCable(), p.lanCable()} {
			if len(c.Port) > maxInterfaceName || len(c.Switch) > maxInterfaceName || ports[c.Port] {
				t.Fatalf("%s: port %q of switch %q is too long, or taken", p.name(), c.Port, c.Switch)
			}
			ports[c.Port] = true
			if other, ok := taken[c.Address.Addr()]; ok {
				t.Fatalf("%s has the address %s of %s", p.name(), c.Address, other)
			}
			taken[c.Address.Addr()] = string(p.name())
		}
		if !wanNetwork.Contains(p.wan()) || !lanSelf(p.pool).Contains(p.lan()) {
			t.Fatalf("%s: %s and %s are outside of their networks", p.name(), p.wan(), p.lan())
		}
		if pods[p.pods()] || !everyPod.Contains(p.pods().Addr()) || services.Overlaps(p.pods()) {
			t.Fatalf("%s: Pods %s are taken, or outside of %s", p.name(), p.pods(), podsCIDR)
		}
		pods[p.pods()] = true
	}
	for _, network := range []netip.Prefix{services, wanNetwork, netip.MustParsePrefix("10.78.0.0/16")} {
		if everyPod.Overlaps(network) {
			t.Errorf("Pods %s overlap %s", podsCIDR, network)
		}
	}
}

func routeTexts(routes []wire.Route) []string {
	var all []string
	for _, r := range routes {
		all = append(all, fmt.Sprintf("%s via %s", r.To, r.Via))
	}
	return all
}

func TestRoutes(t *testing.T) {
	got := routeTexts(place{2, 2}.routes(3))
	want := []string{"0.0.0.0/0 via 10.77.0.1", "10.130.1.0/24 via 10.78.2.1", "10.130.3.0/24 via 10.78.2.3"}
	if !slices.Equal(got, want) {
		t.Errorf("a node's: %v, want %v", got, want)
	}
	got = routeTexts(cloudRoutes((Config{Pools: 2, Nodes: 1}).places()))
	want = []string{
		"10.78.1.1/32 via 10.77.1.1", "10.129.1.0/24 via 10.77.1.1",
		"10.78.2.1/32 via 10.77.2.1", "10.130.1.0/24 via 10.77.2.1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the cloud's: %v, want %v", got, want)
	}
}

func TestTargets(t *testing.T) {
	all := (Config{Pools: 12, Nodes: 2}).places()
	for target, want := range map[string][]place{
		"p1-n2": {{1, 2}}, "pool/p2": {{2, 1}, {2, 2}}, "pool/p1": {{1, 1}, {1, 2}}, // and not p10 to p12
	} {
		if got, err := targets(all, target); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", target, got, err, want)
		}
	}
	for _, target := range []string{"", "p1", "pool/", "pool/p13", "pool/p1-n1", "p1-n3", "cloud"} {
		got, err := targets(all, target)
		if err == nil || !strings.Contains(err.Error(), "want a node such as p1-n1, or pool/p1") {
			t.Errorf("%q: %v, %v; want an error that says what to give", target, got, err)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	for _, n := range []Network{WAN, LAN} {
		if got, err := ParseNetwork(string(n)); got != n || err != nil {
			t.Errorf("%s: %v, %v", n, got, err)
		}
	}
	if got, err := ParseNetwork("WAN"); err == nil {
		t.Errorf("WAN: %v, want an error", got)
	}
}

func TestCutPorts(t *testing.T) {
	p := place{1, 2}
	if wan, lan := (link{p, WAN}).port(), (link{p, LAN}).port(); wan != "w-p1-n2" || lan != "l-p1-n2" {
		t.Errorf("%s and %s", wan, lan)
	}
}

func TestLinkNames(t *testing.T) {
	if wan, lan := (link{place{1, 2}, WAN}).name(), (link{place{1, 2}, LAN}).name(); wan != "p1-n2 wan" || lan != "p1-n2 lan" {
		t.Errorf("%s and %s", wan, lan)
	}
}

func TestRefusals(t *testing.T) {
	all := (Config{Pools: 2, Nodes: 2}).places()
	one, two := place{1, 1}, place{1, 2}
	for _, tt := range []struct {
		name string
		cuts map[link]wire.Fault
		want map[string][]string // machine → what it refuses to send, sorted
	}{
		{"none", nil, map[string][]string{}},
		{"silent cuts refuse nothing", map[link]wire.Fault{{one, WAN}: wire.Drop, {one, LAN}: wire.OneWay},
			map[string][]string{}},
		{"the WAN: the node itself and the cloud", map[link]wire.Fault{{one, WAN}: wire.Reject}, map[string][]string{
			"p1-n1": {"eth0 all"}, "cloud": {"eth0 10.129.1.0/24", "eth0 10.77.1.1/32", "eth0 10.78.1.1/32"},
		}},
		{"the LAN: the node itself and the rest of its pool", map[link]wire.Fault{{one, LAN}: wire.Reject},
			map[string][]string{"p1-n1": {"eth1 all"}, "p1-n2": {"eth1 10.129.1.0/24", "eth1 10.78.1.1/32"}}},
		{"both nodes' LAN and one silent WAN",
			map[link]wire.Fault{{one, LAN}: wire.Reject, {two, LAN}: wire.Reject, {two, WAN}: wire.Drop},
			map[string][]string{
				"p1-n1": {"eth1 10.129.2.0/24", "eth1 10.78.1.2/32", "eth1 all"},
				"p1-n2": {"eth1 10.129.1.0/24", "eth1 10.78.1.1/32", "eth1 all"},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string][]string{}
			for machine, refused := range refusals(tt.cuts, all) {
				for _, r := range refused {
					to := "all"
					if r.To.IsValid() {
						to = r.To.String()
					}
					got[machine] = append(got[machine], r.Interface+" "+to)
				}
				slices.Sort(got[machine])
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
