// Package wire is the lab's cabling: bridges as switches, veth pairs as cables between a switch and a machine, faults on
// those cables, and lines with a rate, a delay and losses that cables can be put on. It works in the network namespace of
// the calling process, which holds the switches, and reaches into machines' namespaces only through the handles it is given.
//
// A silent cut drops IP packets and lets ARP pass: across a real WAN the next hop keeps answering, and a sender that
// could not resolve its neighbour would get "no route to host" at once instead of silence.
//
// Lines are made in this process and not by the kernel's netem, which is missing from many kernels.
package wire

import (
	"errors"
	"fmt"
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
	// Self is an address of the calling process on this switch, with the prefix of the whole network.
	Self netip.Prefix
}

// Up makes the switch, with its address, in the calling process's network namespace.
func (s Switch) Up() error {
	// A bridge without an address of its own takes the lowest of its ports', and changes it when that port goes: every
	// connection of ours would stall until its peers forget the old one.
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.Name, HardwareAddr: hardwareAddress(s.Self.Addr())}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("switch %s: %w", s.Name, err)
	}
	// No learning delay: a cable works as soon as it is plugged in.
	if err := os.WriteFile("/sys/class/net/"+s.Name+"/bridge/forward_delay", []byte("0"), 0); err != nil &&
		!errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("switch %s: %w", s.Name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(s.Self)}); err != nil {
		return fmt.Errorf("switch %s: address %s: %w", s.Name, s.Self, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switch %s: %w", s.Name, err)
	}
	return nil
}

// hardwareAddress is a locally administered address made of an IPv4 address.
func hardwareAddress(ip netip.Addr) net.HardwareAddr {
	b := ip.As4()
	return net.HardwareAddr{0x02, 0x00, b[0], b[1], b[2], b[3]}
}

// Cable connects a machine to a switch.
type Cable struct {
	// Port is the interface at the switch; at most 14 bytes, unique in the lab.
	Port string
	// Interface is the interface in the machine.
	Interface string
	Switch    string
	// Address of the machine on the switch's network.
	Address netip.Prefix
}

// Plug lays the cable to the machine whose first process is pid. The machine's end gets its address and is up.
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
	// A machine that lost its power takes its end of the cable along, but not at once.
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
		if err := h.AddrAdd(end, &netlink.Addr{IPNet: ipNet(c.Address)}); err != nil {
			return err
		}
		return h.LinkSetUp(end)
	})
}

// Route is a route of a machine.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// Routes brings the loopback interface of the machine whose first process is pid up, and sets its routes.
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

// LoopbackUp brings the calling process's own loopback interface up.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Bytes is what a cable carried, in bytes of Ethernet frames as they were counted at the machine's end: with what is lost on
// its way up, and without what is lost on its way down.
type Bytes struct {
	// Up is from the machine, Down to the machine.
	Up   uint64 `json:"up"`
	Down uint64 `json:"down"`
}

// Add returns the sum.
func (b Bytes) Add(o Bytes) Bytes { return Bytes{Up: b.Up + o.Up, Down: b.Down + o.Down} }

// Sub returns the difference.
func (b Bytes) Sub(o Bytes) Bytes { return Bytes{Up: b.Up - o.Up, Down: b.Down - o.Down} }

// Counted returns what the cable has carried since it was plugged in; zero when it is not.
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
		// A thread that could not return to its own namespace must not serve another goroutine: without the unlock,
		// it ends with this goroutine.
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
