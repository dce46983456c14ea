package lab

import (
	"fmt"
	"net/netip"
	"strings"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/wire"
)

// Addresses. Each lab has its own network namespace, so labs do not clash with each other or with the host. families.go has
// the networks of both IP families:
//
//	WAN       10.77.0.0/16            .0.1 the cloud, .P.I node I of pool P, .255.254 the lab itself
//	          fd00:10:77::/64         ::1, ::P:I, ::ff:fe
//	LAN       10.78.P.0/24            of pool P: .I its node I, .254 the lab itself (the laptop of the person on site)
//	          fd00:10:78:P::/64       ::I, ::fe
//	Pods      10.(128+P).I.0/24       on node I of pool P, 10.128.0.0/24 in the cloud
//	          fd00:10:128:PPII::/64
//	Services  10.96.0.0/16, fd00:10:96::/112
//
// In an address of IPv6 the numbers are hexadecimal. A node's InternalIP is its LAN address: pool members reach it over the LAN,
// the cloud over the node's WAN link.
const (
	wanSwitch = "wan"
	wanPort   = "eth0"
	lanPort   = "eth1"

	// MaxPools and MaxNodes (in a pool) are the limits of these addresses.
	MaxPools, MaxNodes = 50, 250
	// cloudNode is the cloud's number on the WAN; selfPool and selfNode are the lab's own.
	cloudNode, selfPool, selfNode = 1, 255, 254
)

func (f family) cloudWAN() netip.Addr { return f.wan.at(0, cloudNode) }

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

func (p place) wan(f family) netip.Addr {
	if p == inCloud {
		return f.cloudWAN()
	}
	return f.wan.at(p.pool, p.index)
}

func (p place) lan(f family) netip.Addr { return f.lan.at(p.pool, p.index) }
func (p place) pods(f family) netip.Prefix {
	return netip.PrefixFrom(f.pods.at(p.pool, p.index), f.pods.part)
}

func (p place) lans(all families) []netip.Addr { return each(all, p.lan) }

// internal returns the node's InternalIPs in a lab, the preferred one first.
func (p place) internal(c Config) []netip.Addr {
	if p == inCloud {
		return each(c.families(), p.wan)
	}
	return p.lans(c.families())
}

func lanSwitch(pool int) string { return fmt.Sprintf("lan%d", pool) }

// switches returns the switches of a lab, with the lab's own addresses.
func switches(pools int, all families) []wire.Switch {
	out := []wire.Switch{{Name: wanSwitch, Self: each(all, func(f family) netip.Prefix {
		return netip.PrefixFrom(f.wan.at(selfPool, selfNode), f.wan.part)
	})}}
	for pool := 1; pool <= pools; pool++ {
		out = append(out, wire.Switch{Name: lanSwitch(pool), Self: each(all, func(f family) netip.Prefix {
			return netip.PrefixFrom(f.lan.at(pool, selfNode), f.lan.part)
		})})
	}
	return out
}

func (p place) wanCable(all families) wire.Cable {
	return wire.Cable{
		Port: "w-" + string(p.name()), Interface: wanPort, Switch: wanSwitch,
		Addresses: each(all, func(f family) netip.Prefix { return netip.PrefixFrom(p.wan(f), f.wan.part) }),
	}
}

func (p place) lanCable(all families) wire.Cable {
	return wire.Cable{
		Port: "l-" + string(p.name()), Interface: lanPort, Switch: lanSwitch(p.pool),
		Addresses: each(all, func(f family) netip.Prefix { return netip.PrefixFrom(p.lan(f), f.lan.part) }),
	}
}

// whole is the network of a single address.
func whole(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// routes returns a node's routes: to the Pods of its pool's other nodes over the LAN, to everything else over the WAN.
func (p place) routes(nodes int, all families) []wire.Route {
	var routes []wire.Route
	for _, f := range all {
		routes = append(routes, wire.Route{To: f.everything, Via: f.cloudWAN()})
		for i := 1; i <= nodes; i++ {
			if peer := (place{p.pool, i}); peer != p {
				routes = append(routes, wire.Route{To: peer.pods(f), Via: peer.lan(f)})
			}
		}
	}
	return routes
}

// cloudRoutes lead to every node's InternalIPs and Pods, each over that node's own WAN link.
func cloudRoutes(nodes []place, all families) []wire.Route {
	routes := make([]wire.Route, 0, 2*len(nodes)*len(all))
	for _, f := range all {
		for _, p := range nodes {
			routes = append(routes, wire.Route{To: whole(p.lan(f)), Via: p.wan(f)}, wire.Route{To: p.pods(f), Via: p.wan(f)})
		}
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

func (c link) cable(all families) wire.Cable {
	if c.network == WAN {
		return c.node.wanCable(all)
	}
	return c.node.lanCable(all)
}

func (c link) port() string { return c.cable(nil).Port }

// name returns the name of the link, or of the line that it has to itself.
func (c link) name() string { return string(c.node.name()) + " " + string(c.network) }

// refusals returns, for each machine, what its own kernel refuses to send while these cuts last. A cut of mode reject is known
// at once at both ends.
func refusals(cuts map[link]wire.Fault, nodes []place, all families) map[string][]wire.Refusal {
	out := map[string][]wire.Refusal{}
	refuse := func(machine, through string, to ...netip.Prefix) {
		for _, t := range to {
			out[machine] = append(out[machine], wire.Refusal{Interface: through, To: t})
		}
	}
	for c, fault := range cuts {
		if fault != wire.Reject {
			continue
		}
		self := c.node
		for _, f := range all {
			if c.network == WAN {
				refuse(string(self.name()), wanPort, f.everything)
				refuse(cloudMachine, wanPort, whole(self.wan(f)), whole(self.lan(f)), self.pods(f))
				continue
			}
			refuse(string(self.name()), lanPort, f.everything)
			for _, peer := range nodes {
				if peer.pool == self.pool && peer != self {
					refuse(string(peer.name()), lanPort, whole(self.lan(f)), self.pods(f))
				}
			}
		}
	}
	return out
}
