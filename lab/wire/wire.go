// Package wire is the lab's cabling: bridges as switches, veth pairs as cables between a switch and a machine, faults on those
// cables, and lines with a rate, a delay and losses that cables can be put on. It works in the calling process's network
// namespace, which holds the switches. It reaches into machines' namespaces only through the handles that it gets.
//
// A silent cut drops IP packets and lets ARP pass, as across a real WAN the next hop keeps answering. A sender that could not
// resolve its neighbour would get "no route to host" at once, instead of silence.
//
// This process itself does what a line does to frames, because many kernels lack netem.
package wire

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Switch is a bridge in the calling process's network namespace.
type Switch struct {
	Name string
	// Self are the calling process's addresses on this switch, each with the prefix of the whole network.
	Self []netip.Prefix
}

// Up makes the switch, with its address, in the calling process's network namespace.
func (s Switch) Up() error {
	// A bridge without its own address takes the lowest of its ports', and changes it when that port goes: then every
	// connection of ours would stall until its peers forget the old one.
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.Name, HardwareAddr: hardwareAddress(s.Self)}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("switch %s: %w", s.Name, err)
	}
	// There is no learning delay: a cable works as soon as it is plugged in.
	if err := os.WriteFile("/sys/class/net/"+s.Name+"/bridge/forward_delay", []byte("0"), 0); err != nil &&
		!errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("switch %s: %w", s.Name, err)
	}
	for _, self := range s.Self {
		if err := netlink.AddrAdd(link, address(self)); err != nil {
			return fmt.Errorf("switch %s: address %s: %w", s.Name, self, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switch %s: %w", s.Name, err)
	}
	return nil
}

// hardwareAddress returns a locally administered address made from IP addresses.
func hardwareAddress(of []netip.Prefix) net.HardwareAddr {
	sum := fnv.New32a()
	for _, p := range of {
		_, _ = sum.Write(p.Addr().AsSlice()) // never fails, by its contract
	}
	return sum.Sum(net.HardwareAddr{0x02, 0x00})
}

// address returns an address of an interface that can be used at once: IPv6 does not first look for another owner of it.
func address(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// Cable connects a machine to a switch.
type Cable struct {
	// Port is the interface at the switch: at most 14 bytes, unique in the lab.
	Port string
	// Interface is the interface in the machine.
	Interface string
	Switch    string
	// Addresses are the machine's on the switch's network.
	Addresses []netip.Prefix
}

// Plug connects the machine whose first process is pid. The machine's end gets its addresses and is up.
func (c Cable) Plug(pid int) error {
	if err := c.plug(pid); err != nil {
		return fmt.Errorf("cable %s: %w", c.Port, err)
	}
	return nil
}

func (c Cable) plug(pid int) error {
	bridge, err := netlink.LinkByName(c.Switch)
	if err != nil {
		return err
	}
	// A machine that loses its power removes its end of the cable, but not at once.
	if old, err := netlink.LinkByName(c.Port); err == nil {
		if err := netlink.LinkDel(old); err != nil {
			return err
		}
	}
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: c.Port, MasterIndex: bridge.Attrs().Index},
		PeerName:      c.Interface,
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return err
	}
	return inside(pid, func(h *netlink.Handle) error {
		end, err := h.LinkByName(c.Interface)
		if err != nil {
			return err
		}
		for _, a := range c.Addresses {
			if err := h.AddrAdd(end, address(a)); err != nil {
				return fmt.Errorf("address %s: %w", a, err)
			}
		}
		return h.LinkSetUp(end)
	})
}

// Route is a route of a machine.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// Routes brings up the loopback interface of the machine whose first process is pid, and sets its routes.
func Routes(pid int, routes []Route) error {
	return inside(pid, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(lo); err != nil {
			return err
		}
		for _, r := range routes {
			if err := h.RouteReplace(&netlink.Route{Dst: ipNet(r.To), Gw: r.Via.AsSlice()}); err != nil {
				return fmt.Errorf("route to %s via %s: %w", r.To, r.Via, err)
			}
		}
		return nil
	})
}

// LoopbackUp brings up the calling process's own loopback interface.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Bytes is what a cable carried, in bytes of Ethernet frames as counted at the machine's end. So it includes frames that are
// lost on the way up, and not those that are lost on the way down.
type Bytes struct {
	// Up counts from the machine, Down to the machine.
	Up   uint64 `json:"up"`
	Down uint64 `json:"down"`
}

// Add returns the sum.
func (b Bytes) Add(o Bytes) Bytes { return Bytes{Up: b.Up + o.Up, Down: b.Down + o.Down} }

// Sub returns the difference.
func (b Bytes) Sub(o Bytes) Bytes { return Bytes{Up: b.Up - o.Up, Down: b.Down - o.Down} }

// Counted returns what the cable has carried since it was plugged in; zero if it is not plugged in.
func (c Cable) Counted() Bytes {
	port, err := netlink.LinkByName(c.Port)
	if err != nil || port.Attrs().Statistics == nil {
		return Bytes{}
	}
	s := port.Attrs().Statistics
	return Bytes{Up: s.RxBytes, Down: s.TxBytes}
}

// Enter runs f in the network namespace of process pid. Sockets that f makes stay in that namespace.
func Enter(pid int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// A thread that could not return to its own namespace must not serve another goroutine: without the unlock, it
		// ends with this goroutine.
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			result <- err
			return
		}
		defer home.Close()
		there, err := netns.GetFromPid(pid)
		if err != nil {
			result <- fmt.Errorf("network namespace of process %d: %w", pid, err)
			runtime.UnlockOSThread()
			return
		}
		defer there.Close()
		if err := netns.Set(there); err != nil {
			result <- fmt.Errorf("network namespace of process %d: %w", pid, err)
			return
		}
		err = f()
		if back := netns.Set(home); back == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// inside runs f with a netlink handle in the network namespace of process pid.
func inside(pid int, f func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("network namespace of process %d: %w", pid, err)
	}
	defer h.Close()
	return f(h)
}
