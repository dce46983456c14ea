package lab

import (
	"fmt"
	"net/netip"
	"strings"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab/wire"
)

// Addresses. Each lab has its own network namespace, so labs do not clash with each other or with the host.
//
//	WAN   10.77.0.0/16  10.77.0.1 the cloud, 10.77.P.I node I of pool P, 10.77.255.254 the lab itself
//	LAN   10.78.P.0/24  of pool P: .I its node I, .254 the lab itself (the laptop of the person on site)
//	Pods  10.(128+P).I.0/24 on node I of pool P, 10.128.0.0/24 in the cloud; Services 10.96.0.0/16
//
// A node's InternalIP is its LAN address (or with Config.InternalWAN its WAN address): pool members reach it over the LAN, the
// cloud over the node's WAN link.
const (
	wanSwitch = "wan"
	wanPort   = "eth0"
	lanPort   = "eth1"

	serviceCIDR = "10.96.0.0/16"
	podsCIDR    = "10.128.0.0/9"

	// MaxPools and MaxNodes (in a pool) are the limits of these addresses.
	MaxPools, MaxNodes = 50, 250
)

var (
	wanNetwork = netip.MustParsePrefix("10.77.0.0/16")
	lanNetwork = netip.MustParsePrefix("10.78.0.0/16") // of all pools
	cloudWAN   = netip.MustParseAddr("10.77.0.1")
	labWAN     = netip.MustParseAddr("10.77.255.254")
)

// cloudMachine is the name of the machine that runs the control plane.
const cloudMachine = "cloud"

// place is a node's place in the topology: pool and index count from 1.
type place struct{ pool, index int }

// inCloud is the cloud's machine as a node of an installed lab. It is in no pool.
var inCloud = place{}

func poolName(pool int) edge.PoolName { return edge.PoolName(fmt.Sprintf("p%d", pool)) }

func (p place) poolName() edge.PoolName { return poolName(p.pool) }

func (p place) name() edge.NodeName {
	if p == inCloud {
		return cloudMachine
	}
	return edge.NodeName(fmt.Sprintf("p%d-n%d", p.pool, p.index))
}

func (p place) wan() netip.Addr { return netip.AddrFrom4([4]byte{10, 77, byte(p.pool), byte(p.index)}) }
func (p place) lan() netip.Addr { return netip.AddrFrom4([4]byte{10, 78, byte(p.pool), byte(p.index)}) }

// internal returns the node's InternalIP in a lab.
func (p place) internal(c Config) netip.Addr {
	switch {
	case p == inCloud:
		return cloudWAN
	case c.InternalWAN:
		return p.wan()
	}
	return p.lan()
}

// LANAddress returns the address on its pool's LAN of a node, by its number in the pool; both count from 1.
func LANAddress(pool, node int) netip.Addr { return place{pool, node}.lan() }

func (p place) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + p.pool), byte(p.index), 0}), 24)
}

func lanSwitch(pool int) string { return fmt.Sprintf("lan%d", pool) }

func lanSelf(pool int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, byte(pool), 254}), 24)
}

func (p place) wanCable() wire.Cable {
	return wire.Cable{
		Port: "w-" + string(p.name()), Interface: wanPort, Switch: wanSwitch,
		Address: netip.PrefixFrom(p.wan(), wanNetwork.Bits()),
	}
}

func (p place) lanCable() wire.Cable {
	return wire.Cable{
		Port: "l-" + string(p.name()), Interface: lanPort, Switch: lanSwitch(p.pool),
		Address: netip.PrefixFrom(p.lan(), lanSelf(p.pool).Bits()),
	}
}

var cloudCable = wire.Cable{
	Port: "w-cloud", Interface: wanPort, Switch: wanSwitch, Address: netip.PrefixFrom(cloudWAN, wanNetwork.Bits()),
}

// routes returns a node's routes: to the Pods of its pool's other nodes over the LAN, to everything else over the WAN.
func (p place) routes(nodes int) []wire.Route {
	routes := []wire.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: cloudWAN}}
	for i := 1; i <= nodes; i++ {
		if peer := (place{p.pool, i}); peer != p {
			routes = append(routes, wire.Route{To: peer.pods(), Via: peer.lan()})
		}
	}
	return routes
}

// cloudRoutes lead to every node's InternalIP and Pods, each over that node's own WAN link.
func cloudRoutes(all []place) []wire.Route {
	routes := make([]wire.Route, 0, 2*len(all))
	for _, p := range all {
		routes = append(routes,
			wire.Route{To: netip.PrefixFrom(p.lan(), 32), Via: p.wan()}, wire.Route{To: p.pods(), Via: p.wan()})
	}
	return routes
}

// Network is one of a node's two networks.
type Network string

// The networks.
const (
	WAN Network = "wan"
	LAN Network = "lan"
)

// ParseNetwork checks a name given by a person.
func ParseNetwork(name string) (Network, error) {
	switch n := Network(name); n {
	case WAN, LAN:
		return n, nil
	}
	return "", fmt.Errorf("unknown network %q: want wan or lan", name)
}

// targets resolves NODE or pool/POOL to nodes.
func targets(all []place, target string) ([]place, error) {
	pool, isPool := strings.CutPrefix(target, "pool/")
	var found []place
	for _, p := range all {
		if (isPool && string(p.poolName()) == pool) || (!isPool && string(p.name()) == target) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no node or pool %q in this lab: want a node such as %s, or pool/%s",
			target, all[0].name(), all[0].poolName())
	}
	return found, nil
}

// link is a node's link to one of its networks.
type link struct {
	node    place
	network Network
}

func (c link) cable() wire.Cable {
	if c.network == WAN {
		return c.node.wanCable()
	}
	return c.node.lanCable()
}

func (c link) port() string { return c.cable().Port }

// name returns the name of the link, or of the line that it has to itself.
func (c link) name() string { return string(c.node.name()) + " " + string(c.network) }

// refusals returns, for each machine, what its own kernel refuses to send while these cuts last: both ends of a cut in
// mode reject know it at once.
func refusals(cuts map[link]wire.Fault, all []place) map[string][]wire.Refusal {
	out := map[string][]wire.Refusal{}
	for c, fault := range cuts {
		if fault != wire.Reject {
			continue
		}
		name := string(c.node.name())
		if c.network == WAN {
			out[name] = append(out[name], wire.Refusal{Interface: wanPort})
			for _, to := range []netip.Prefix{
				netip.PrefixFrom(c.node.wan(), 32), netip.PrefixFrom(c.node.lan(), 32), c.node.pods(),
			} {
				out[cloudMachine] = append(out[cloudMachine], wire.Refusal{Interface: wanPort, To: to})
			}
			continue
		}
		out[name] = append(out[name], wire.Refusal{Interface: lanPort})
		for _, peer := range all {
			if peer.pool == c.node.pool && peer != c.node {
				name := string(peer.name())
				for _, to := range []netip.Prefix{netip.PrefixFrom(c.node.lan(), 32), c.node.pods()} {
					out[name] = append(out[name], wire.Refusal{Interface: lanPort, To: to})
				}
			}
		}
	}
	return out
}
