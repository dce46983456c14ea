package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"yurtcoordinator/internal/edge"
)

// IPFamily is the IP family of a lab's addresses, or both.
type IPFamily string

// IP families. In a DualStack lab nodes, Pods and the cloud's ranges of Services have addresses of both, IPv4 first.
const (
	IPv4      IPFamily = "ipv4"
	IPv6      IPFamily = "ipv6"
	DualStack IPFamily = "dual"
)

// network is one of a lab's networks in one IP family. Each pool, or each node, has a part of it.
type network struct {
	netip.Prefix // all of it
	part         int
	// pool and node are the bytes of an address to which the numbers of a pool, and of a node in it, are added.
	pool, node int
}

// at returns the address of a node. For a network of which each node has a part, it returns the first address of that part.
func (n network) at(pool, node int) netip.Addr {
	b := n.Addr().AsSlice()
	b[n.pool] += byte(pool)
	b[n.node] += byte(node)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// family has a lab's networks in one IP family.
type family struct {
	wan, lan, pods network
	services       netip.Prefix
	// everything is the whole family.
	everything netip.Prefix
	// record is the type of DNS record that has addresses of the family.
	record dnsmessage.Type
	// save is the program that prints a machine's rules of iptables.
	save string
}

// The networks of all labs, and where a pool's and a node's numbers are in their addresses.
var (
	four = family{
		wan:        network{Prefix: netip.MustParsePrefix("10.77.0.0/16"), part: 16, pool: 2, node: 3},
		lan:        network{Prefix: netip.MustParsePrefix("10.78.0.0/16"), part: 24, pool: 2, node: 3},
		pods:       network{Prefix: netip.MustParsePrefix("10.128.0.0/9"), part: 24, pool: 1, node: 2},
		services:   netip.MustParsePrefix("10.96.0.0/16"),
		everything: netip.MustParsePrefix("0.0.0.0/0"), record: dnsmessage.TypeA, save: "iptables-save",
	}
	six = family{
		wan:        network{Prefix: netip.MustParsePrefix("fd00:10:77::/64"), part: 64, pool: 13, node: 15},
		lan:        network{Prefix: netip.MustParsePrefix("fd00:10:78::/48"), part: 64, pool: 7, node: 15},
		pods:       network{Prefix: netip.MustParsePrefix("fd00:10:128::/48"), part: 64, pool: 6, node: 7},
		services:   netip.MustParsePrefix("fd00:10:96::/112"), // a larger one is refused by versions before 1.33
		everything: netip.MustParsePrefix("::/0"), record: dnsmessage.TypeAAAA, save: "ip6tables-save",
	}
)

// families are a lab's, the preferred one first.
type families []family

// stacks are the lab's IP families by name.
var stacks = map[IPFamily]families{"": {four}, IPv4: {four}, IPv6: {six}, DualStack: {four, six}}

func (c Config) families() families { return stacks[c.IPFamily] }

// each returns what f returns of each family.
func each[T any](all families, f func(family) T) []T {
	out := make([]T, len(all))
	for i, one := range all {
		out[i] = f(one)
	}
	return out
}

// listed returns what f returns of each family as the value of a flag.
func listed[T fmt.Stringer](all families, f func(family) T) string {
	return strings.Join(texts(each(all, f)), ",")
}

func texts[T fmt.Stringer](all []T) []string {
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = one.String()
	}
	return out
}

func asIPs(all []netip.Addr) []net.IP {
	out := make([]net.IP, len(all))
	for i, a := range all {
		out[i] = a.AsSlice()
	}
	return out
}

// lanNetwork is the network of all pools' LANs.
func lanNetwork(f family) netip.Prefix { return f.lan.Prefix }

// portAPIServer is where the cloud's kube-apiserver serves.
const portAPIServer = 6443

// cloudAddress is where the cloud's kube-apiserver serves: at the cloud's first address.
func (all families) cloudAddress() string { return httpsAt(all[0].cloudWAN(), portAPIServer) }

// coordinatorAddress is where a coordinator on a node serves: at the node's first address on the LAN.
func (all families) coordinatorAddress(on place) string {
	return httpsAt(on.lan(all[0]), edge.PortCoordinator)
}

func httpsAt(address netip.Addr, port int) string {
	return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(port))
}

// hosts returns the lines of /etc/hosts for a machine.
func hosts(addresses []netip.Addr, name string) string {
	var b strings.Builder
	for _, a := range addresses {
		fmt.Fprintf(&b, "%s %s\n", a, name)
	}
	return b.String()
}

// LANAddresses returns a node's addresses on its pool's LAN, the preferred one first. The pool's number, and the node's number
// in the pool, count from 1.
func (c Config) LANAddresses(pool, node int) []netip.Addr {
	return place{pool, node}.lans(c.families())
}

// Belongs reports whether an address is of one of the lab's IP families.
func (c Config) Belongs(address netip.Addr) bool {
	return slices.ContainsFunc(c.families(), func(f family) bool { return f.everything.Contains(address) })
}

// SaveRules returns, for each of the lab's IP families, the program that prints a machine's rules of iptables.
func (c Config) SaveRules() []string {
	return each(c.families(), func(f family) string { return f.save })
}
