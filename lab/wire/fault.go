package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Fault is what is wrong with a cable.
type Fault uint8

const (
	// None: the cable works.
	None Fault = iota
	// Drop: packets vanish silently in both directions, and the interfaces stay up.
	Drop
	// Reject: like Drop, but senders at either end learn at once that nothing gets through.
	Reject
	// OneWay: what the machine sends vanishes silently; what is sent to it arrives.
	OneWay
)

var faultNames = [...]string{None: "none", Drop: "drop", Reject: "reject", OneWay: "oneway"}

// String returns the name that the command line uses.
func (f Fault) String() string { return faultNames[f] }

// ParseFault is the inverse of String for the faults that a person can ask for.
func ParseFault(name string) (Fault, error) {
	for f := Drop; int(f) < len(faultNames); f++ {
		if faultNames[f] == name {
			return f, nil
		}
	}
	return None, fmt.Errorf("unknown mode %q: want drop, reject or oneway", name)
}

const table = "yurtlab"

// Apply makes these faults, by switch port, the only ones, in one step. They may name ports that are not plugged in: the fault
// exists as soon as the cable does.
func Apply(faults map[string]Fault) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t := renew(c, nftables.TableFamilyBridge)
	chain := c.AddChain(&nftables.Chain{
		Name: "forward", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	var in, out []nftables.SetElement
	for port, fault := range faults {
		// A cable on a line is at the switch with another port.
		elements := []nftables.SetElement{{Key: ifname(port)}, {Key: ifname(farPort(port))}}
		switch fault {
		case None:
		case OneWay:
			in = append(in, elements...)
		default:
			in, out = append(in, elements...), append(out, elements...)
		}
	}
	if len(in) > 0 {
		passDiscovery(c, t, chain)
	}
	err = errors.Join(drop(c, t, chain, expr.MetaKeyIIFNAME, in), drop(c, t, chain, expr.MetaKeyOIFNAME, out))
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		return fmt.Errorf("nftables: faults on cables: %w (the kernel needs nf_tables with its bridge family)", err)
	}
	return nil
}

// drop adds a rule for IPv4 and one for IPv6. ARP passes, and so does the neighbour discovery of IPv6. All ports are in one
// set, because hundreds of rules would cost every packet of the lab.
func drop(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain, direction expr.MetaKey, ports []nftables.SetElement) error {
	if len(ports) == 0 {
		return nil
	}
	for _, protocol := range []uint16{unix.ETH_P_IP, unix.ETH_P_IPV6} {
		set := &nftables.Set{Table: t, Anonymous: true, Constant: true, KeyType: nftables.TypeIFName}
		if err := c.AddSet(set, ports); err != nil {
			return err
		}
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: direction, Register: 1},
			&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
			&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(protocol)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	return nil
}

// Types of ICMPv6 by which neighbours find each other (RFC 4861): from router solicitation to redirect.
const firstDiscovery, lastDiscovery = 133, 137

// passDiscovery adds the rule that lets neighbours find each other over IPv6.
func passDiscovery(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) {
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(unix.ETH_P_IPV6)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: []byte{firstDiscovery}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{lastDiscovery}},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
}

// Refusal is a destination that a machine's own kernel refuses to send to.
type Refusal struct {
	Interface string
	// To is the destination. Its address has no bits beyond the prefix.
	To netip.Prefix
}

// Refuse makes refusals the only ones of the machine whose first process is pid.
func Refuse(pid int, refusals []Refusal) error {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t := renew(c, nftables.TableFamilyINet)
	hooks := map[string]*nftables.ChainHook{"out": nftables.ChainHookOutput, "through": nftables.ChainHookForward}
	for name, hook := range hooks {
		chain := c.AddChain(&nftables.Chain{
			Name: name, Table: t, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter,
		})
		for _, r := range refusals {
			match := slices.Concat([]expr.Any{
				&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(r.Interface)},
			}, destined(r.To))
			tcp := slices.Concat(match, []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
			})
			rest := slices.Concat(match, []expr.Any{
				&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_HOST_UNREACH},
			})
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: tcp})
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: rest})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: refusals: %w", err)
	}
	return nil
}

// destined matches packets to addresses of a network.
func destined(to netip.Prefix) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16) // where the destination is in a header
	if to.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	length := uint32(to.Addr().BitLen() / 8)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: length, Mask: ipNet(to).Mask, Xor: make([]byte, length),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: to.Addr().AsSlice()},
	}
}

// renew empties our table, as part of the batch. It adds the table before it deletes it, because a deletion fails if there is
// no table.
func renew(c *nftables.Conn, family nftables.TableFamily) *nftables.Table {
	t := &nftables.Table{Name: table, Family: family}
	c.AddTable(t)
	c.DelTable(t)
	return c.AddTable(t)
}

// ifname returns an interface name as nftables compares it: padded with zeros to 16 bytes.
func ifname(name string) []byte {
	b := make([]byte, 16)
	copy(b, name)
	return b
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
