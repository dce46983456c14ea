package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/lab/wire"
)

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		place                             place
		family                            family
		name, wan, lan, pods, self, cloud string
	}{
		{place{1, 1}, four, "p1-n1", "10.77.1.1/16", "10.78.1.1/24", "10.129.1.0/24", "10.78.1.254/24", "10.77.0.1"},
		{place{2, 3}, four, "p2-n3", "10.77.2.3/16", "10.78.2.3/24", "10.130.3.0/24", "10.78.2.254/24", "10.77.0.1"},
		{place{MaxPools, MaxNodes}, four, "p50-n250", "10.77.50.250/16", "10.78.50.250/24", "10.178.250.0/24", "10.78.50.254/24",
			"10.77.0.1"},
		{place{2, 3}, six, "p2-n3", "fd00:10:77::2:3/64", "fd00:10:78:2::3/64", "fd00:10:128:203::/64", "fd00:10:78:2::fe/64",
			"fd00:10:77::1"},
		{place{MaxPools, MaxNodes}, six, "p50-n250", "fd00:10:77::32:fa/64", "fd00:10:78:32::fa/64", "fd00:10:128:32fa::/64",
			"fd00:10:78:32::fe/64", "fd00:10:77::1"},
	} {
		p, all := tt.place, families{tt.family}
		got := []string{
			string(p.name()), p.wanCable(all).Addresses[0].String(), p.lanCable(all).Addresses[0].String(),
			p.pods(tt.family).String(), switches(p.pool, all)[p.pool].Self[0].String(), tt.family.cloudWAN().String(),
		}
		if want := []string{tt.name, tt.wan, tt.lan, tt.pods, tt.self, tt.cloud}; !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", p, got, want)
		}
	}
}

func TestInternalAddresses(t *testing.T) {
	for _, tt := range []struct {
		place place
		cfg   Config
		want  string
	}{
		{place{1, 2}, Config{}, "[10.78.1.2]"},
		{place{1, 2}, Config{IPFamily: IPv6}, "[fd00:10:78:1::2]"},
		{place{1, 2}, Config{IPFamily: DualStack}, "[10.78.1.2 fd00:10:78:1::2]"},
		{inCloud, Config{IPFamily: DualStack}, "[10.77.0.1 fd00:10:77::1]"},
	} {
		if got := fmt.Sprint(tt.place.internal(tt.cfg)); got != tt.want {
			t.Errorf("%s of %+v: %s, want %s", tt.place.name(), tt.cfg, got, tt.want)
		}
	}
	both := Config{IPFamily: DualStack}
	if got := fmt.Sprint(both.LANAddresses(2, 1)); got != "[10.78.2.1 fd00:10:78:2::1]" {
		t.Errorf("on the LAN: %s", got)
	}
	if got := stacks[DualStack].cloudAddress(); got != "https://10.77.0.1:6443" {
		t.Errorf("a cloud of both families is at %s", got)
	}
	if got := stacks[IPv6].cloudAddress(); got != "https://[fd00:10:77::1]:6443" {
		t.Errorf("a cloud of IPv6 is at %s", got)
	}
	for address, want := range map[string]bool{"10.1.2.3": false, "fd00::1": true} {
		if got := (Config{IPFamily: IPv6}).Belongs(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s belongs to a lab of IPv6: %v", address, got)
		}
	}
	if got := hosts(place{1, 2}.internal(both), "p1-n2"); got != "10.78.1.2 p1-n2\nfd00:10:78:1::2 p1-n2\n" {
		t.Errorf("/etc/hosts has %q", got)
	}
}

// The largest lab there may be: every address once, in its network, apart from those of the lab itself, and every name
// of an interface one that the kernel takes.
func TestLargestLab(t *testing.T) {
	nodes := (Config{Pools: MaxPools, Nodes: MaxNodes}).places()
	if len(nodes) != MaxPools*MaxNodes || nodes[0] != (place{1, 1}) || nodes[1] != (place{1, 2}) {
		t.Fatalf("%d places, from %v", len(nodes), nodes[:2])
	}
	const maxInterfaceName = 15
	ports := map[string]bool{}
	for _, p := range nodes {
		for _, c := range []wire.Cable{p.wanCable(nil), p.lanCable(nil)} {
			if len(c.Port) > maxInterfaceName || len(c.Switch) > maxInterfaceName || ports[c.Port] {
				t.Fatalf("%s: port %q of switch %q is too long, or taken", p.name(), c.Port, c.Switch)
			}
			ports[c.Port] = true
		}
	}
	for name, f := range map[IPFamily]family{IPv4: four, IPv6: six} {
		all := families{f}
		taken := map[netip.Addr]string{f.cloudWAN(): "the cloud"}
		take := func(who string, address netip.Prefix, network netip.Prefix) {
			t.Helper()
			if other, ok := taken[address.Addr()]; ok || !network.Contains(address.Addr()) {
				t.Fatalf("%s: %s has the address %s of %q in %s", name, who, address, other, network)
			}
			taken[address.Addr()] = who
		}
		for _, s := range switches(MaxPools, all) {
			network := f.lan.Prefix
			if s.Name == wanSwitch {
				network = f.wan.Prefix
			}
			take("the lab", s.Self[0], network)
		}
		pods := map[netip.Prefix]bool{inCloud.pods(f): true}
		for _, p := range nodes {
			take(string(p.name()), p.wanCable(all).Addresses[0], f.wan.Prefix)
			take(string(p.name()), p.lanCable(all).Addresses[0], switches(p.pool, all)[p.pool].Self[0].Masked())
			if pods[p.pods(f)] || !f.pods.Contains(p.pods(f).Addr()) {
				t.Fatalf("%s: Pods %s are taken, or outside of %s", p.name(), p.pods(f), f.pods)
			}
			pods[p.pods(f)] = true
		}
		networks := []netip.Prefix{f.wan.Prefix, f.lan.Prefix, f.pods.Prefix, f.services}
		for i, one := range networks {
			for _, other := range networks[:i] {
				if one.Overlaps(other) {
					t.Errorf("%s overlaps %s", one, other)
				}
			}
			if !f.everything.Contains(one.Addr()) || one != one.Masked() {
				t.Errorf("%s is no network of %s", one, f.everything)
			}
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
	got := routeTexts(place{2, 2}.routes(3, families{four}))
	want := []string{"0.0.0.0/0 via 10.77.0.1", "10.130.1.0/24 via 10.78.2.1", "10.130.3.0/24 via 10.78.2.3"}
	if !slices.Equal(got, want) {
		t.Errorf("a node's: %v, want %v", got, want)
	}
	got = routeTexts(cloudRoutes((Config{Pools: 2, Nodes: 1}).places(), families{four}))
	want = []string{
		"10.78.1.1/32 via 10.77.1.1", "10.129.1.0/24 via 10.77.1.1",
		"10.78.2.1/32 via 10.77.2.1", "10.130.1.0/24 via 10.77.2.1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the cloud's: %v, want %v", got, want)
	}
	dual := stacks[DualStack]
	got = append(routeTexts(place{2, 2}.routes(2, dual)), routeTexts(cloudRoutes((Config{Pools: 1, Nodes: 1}).places(), dual))...)
	want = []string{
		"0.0.0.0/0 via 10.77.0.1", "10.130.1.0/24 via 10.78.2.1", "::/0 via fd00:10:77::1",
		"fd00:10:128:201::/64 via fd00:10:78:2::1",
		"10.78.1.1/32 via 10.77.1.1", "10.129.1.0/24 via 10.77.1.1",
		"fd00:10:78:1::1/128 via fd00:10:77::1:1", "fd00:10:128:101::/64 via fd00:10:77::1:1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("of both families: %v, want %v", got, want)
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
		name     string
		families families
		cuts     map[link]wire.Fault
		want     map[string][]string // machine → what it refuses to send, sorted
	}{
		{"none", families{four}, nil, map[string][]string{}},
		{"silent cuts refuse nothing", families{four}, map[link]wire.Fault{{one, WAN}: wire.Drop, {one, LAN}: wire.OneWay},
			map[string][]string{}},
		{"the WAN: the node itself and the cloud", families{four}, map[link]wire.Fault{{one, WAN}: wire.Reject},
			map[string][]string{
				"p1-n1": {"eth0 0.0.0.0/0"}, "cloud": {"eth0 10.129.1.0/24", "eth0 10.77.1.1/32", "eth0 10.78.1.1/32"},
			}},
		{"the LAN: the node itself and the rest of its pool", families{four}, map[link]wire.Fault{{one, LAN}: wire.Reject},
			map[string][]string{"p1-n1": {"eth1 0.0.0.0/0"}, "p1-n2": {"eth1 10.129.1.0/24", "eth1 10.78.1.1/32"}}},
		{"both nodes' LAN and one silent WAN", families{four},
			map[link]wire.Fault{{one, LAN}: wire.Reject, {two, LAN}: wire.Reject, {two, WAN}: wire.Drop},
			map[string][]string{
				"p1-n1": {"eth1 0.0.0.0/0", "eth1 10.129.2.0/24", "eth1 10.78.1.2/32"},
				"p1-n2": {"eth1 0.0.0.0/0", "eth1 10.129.1.0/24", "eth1 10.78.1.1/32"},
			}},
		{"the LAN, of both families", stacks[DualStack], map[link]wire.Fault{{one, LAN}: wire.Reject}, map[string][]string{
			"p1-n1": {"eth1 0.0.0.0/0", "eth1 ::/0"}, "p1-n2": {"eth1 10.129.1.0/24", "eth1 10.78.1.1/32",
				"eth1 fd00:10:128:101::/64", "eth1 fd00:10:78:1::1/128"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string][]string{}
			for machine, refused := range refusals(tt.cuts, all, tt.families) {
				for _, r := range refused {
					got[machine] = append(got[machine], r.Interface+" "+r.To.String())
				}
				slices.Sort(got[machine])
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
