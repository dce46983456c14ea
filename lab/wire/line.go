package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"yurtcoordinator/lab/line"
	"yurtcoordinator/lab/onecpu"
)

// Line is a link with a line.Shape, in place of one cable's plain copper, or of several cables that share it. It reads each
// frame at one end, asks the model when the frame comes out, and then writes it at the other end.
//
// A cable on a line is taken out of its switch, with both its ends up, and a second cable is plugged into its place. The line
// reads and writes the near end of both:
//
//	machine eth0 ── w-NODE  ⇄  line  ⇄  xw-NODE ── sw-NODE switch
//
// So the machine keeps its interface, addresses, routes and connections, and faults are made at the switch as usual. To replace
// eth0 by a TAP would lose all that.
type Line struct {
	name     string
	up, down *way

	mu      sync.Mutex
	carried map[*Carried]struct{}
	missed  uint64 // of cables that were on it earlier
}

// NewLine returns a line that does nothing until Run. The name, the seed and the sequence of frames decide which frames are
// lost.
func NewLine(name string, shape line.Shape, seed uint64) *Line {
	began := time.Now()
	return &Line{
		name: name, carried: map[*Carried]struct{}{},
		up:   newWay(line.NewWay(shape, seed, name+" "+Up), began),
		down: newWay(line.NewWay(shape, seed, name+" "+Down), began),
	}
}

// Up and Down are the directions: from the machine, and to it. A Line's name, a space and the direction are together the name
// for line.NewWay.
const (
	Up   = "up"
	Down = "down"
)

// Run releases frames until ctx is done. Frames on their way then never come out.
func (l *Line) Run(ctx context.Context) {
	var both sync.WaitGroup
	for _, w := range []*way{l.up, l.down} {
		both.Go(func() {
			onecpu.Stay() // no frame overtakes another
			w.run(ctx)
		})
	}
	both.Wait()
}

// Carriage is what a line has carried.
type Carriage struct {
	Up   line.Counts `json:"up"`
	Down line.Counts `json:"down"`
	// Missed counts frames that this process did not read in time, or could not write. The seed did not decide these losses.
	Missed uint64 `json:"missed"`
}

// Counted returns what the line has carried.
func (l *Line) Counted() Carriage {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Carriage{Up: l.up.counted(), Down: l.down.counted(), Missed: l.missed + l.up.refused() + l.down.refused()}
	for carried := range l.carried {
		c.Missed += carried.near.missed() + carried.far.missed()
	}
	return c
}

// Carried is a cable on a line.
type Carried struct {
	line      *Line
	cable     Cable
	near, far *end // at the machine's cable, and at the cable to the switch
	reading   sync.WaitGroup
}

// aside is a switch that is never up. So a frame at one of its ports reaches only a program that reads the port itself. On a
// switch that is up, the kernel would answer the frames for its own addresses.
const aside = "aside"

// LayAside makes the switch aside, which lines need, once, in the calling process's network namespace.
func LayAside() error {
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: aside}}); err != nil {
		return fmt.Errorf("switch %s: %w", aside, err)
	}
	return nil
}

// Carry moves a plugged-in cable of the machine whose first process is pid onto the line.
func (l *Line) Carry(c Cable, pid int) (*Carried, error) {
	carried := &Carried{line: l, cable: c}
	if err := carried.lay(pid); err != nil {
		return nil, errors.Join(fmt.Errorf("cable %s on a line: %w", c.Port, err), carried.Close(), c.Direct(pid))
	}
	l.mu.Lock()
	l.carried[carried] = struct{}{}
	l.mu.Unlock()
	carried.reading.Go(func() { l.up.read(carried.near, carried.far) })
	carried.reading.Go(func() { l.down.read(carried.far, carried.near) })
	return carried, nil
}

// oneSegment makes an interface send frames no longer than its MTU. Otherwise a large write would be one frame of up to 64 KiB,
// which the line would lose as a whole.
const oneSegment, manySegments = 1, 65535

func (d *Carried) lay(pid int) error {
	c := d.cable
	dark, err := netlink.LinkByName(aside)
	if err != nil {
		return fmt.Errorf("switch %s: %w", aside, err)
	}
	bridge, err := netlink.LinkByName(c.Switch)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(c.Port)
	if err != nil {
		return err
	}
	if err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: c.farPort()}, PeerName: c.farEnd(),
	}); err != nil {
		return err
	}
	outer, err := silent(c.farPort())
	if err != nil {
		return err
	}
	inner, err := silent(c.farEnd())
	if err != nil {
		return err
	}
	if err := errors.Join(
		netlink.LinkSetGSOMaxSegs(outer, oneSegment), netlink.LinkSetMaster(inner, dark),
		netlink.LinkSetUp(inner), netlink.LinkSetUp(outer), segments(c.Interface, pid, oneSegment),
		netlink.LinkSetMaster(port, dark),
	); err != nil {
		return err
	}
	if d.near, err = open(port); err != nil {
		return err
	}
	if d.far, err = open(inner); err != nil {
		return err
	}
	return netlink.LinkSetMaster(outer, bridge)
}

// silent stops the kernel from sending its own frames on an interface, as IPv6 does when it comes up.
func silent(name string) (netlink.Link, error) {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return netlink.LinkByName(name)
}

func segments(name string, pid, most int) error {
	return inside(pid, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return h.LinkSetGSOMaxSegs(link, most)
	})
}

// farPort is the interface at the switch while the cable is on a line. farEnd is the interface that the line reads.
func (c Cable) farPort() string { return farPort(c.Port) }
func (c Cable) farEnd() string  { return "x" + c.Port }

func farPort(port string) string { return "s" + port }

// Close takes the cable off the line and leaves it unplugged. Afterwards either Direct plugs it in again, or the machine has no
// power. Later frames have nowhere to go.
func (d *Carried) Close() error {
	for _, e := range []*end{d.near, d.far} {
		if e != nil {
			e.close()
		}
	}
	d.reading.Wait()
	d.line.mu.Lock()
	if _, ok := d.line.carried[d]; ok {
		delete(d.line.carried, d)
		d.line.missed += d.near.missed() + d.far.missed()
	}
	d.line.mu.Unlock()
	far, err := netlink.LinkByName(d.cable.farPort())
	if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(far)
}

// Direct plugs a cable that was on a line into its switch again.
func (c Cable) Direct(pid int) error {
	bridge, err := netlink.LinkByName(c.Switch)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(c.Port)
	if err != nil {
		return err
	}
	return errors.Join(segments(c.Interface, pid, manySegments), netlink.LinkSetMaster(port, bridge))
}

// end is where a line reads and writes frames: a packet socket on an interface.
type end struct {
	file *os.File

	mu      sync.Mutex
	dropped uint64
}

// readBuffer is how many bytes of frames, and of the kernel's data about each, may wait for this process. That is some thousand
// frames, as in a switch port's queue of a thousand.
const readBuffer = 4 << 20

func open(link netlink.Link) (*end, error) {
	// Protocol 0 receives nothing until the socket is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	fail := func(what string, err error) (*end, error) {
		return nil, errors.Join(fmt.Errorf("packet socket of %s: %s: %w", link.Attrs().Name, what, err), unix.Close(fd))
	}
	// A header from the kernel before each frame says which part of its checksum must still be computed. It is written
	// as it was read.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fail("headers", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return fail("ignore what is sent", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, readBuffer); err != nil {
		// Without root outside the lab, this is as much as the system allows (net.core.rmem_max).
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, readBuffer); err != nil {
			return fail("buffer", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{
		Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}), Ifindex: link.Attrs().Index,
	}); err != nil {
		return fail("bind", err)
	}
	return &end{file: os.NewFile(uintptr(fd), link.Attrs().Name)}, nil
}

func (e *end) close() {
	e.missed()
	e.file.Close()
}

// missed returns how many frames the kernel had no room for.
func (e *end) missed() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	raw, err := e.file.SyscallConn()
	if err != nil {
		return e.dropped
	}
	_ = raw.Control(func(fd uintptr) { // if it is closed, the earlier count stays
		// The read sets the counter to zero.
		if s, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			e.dropped += uint64(s.Drops)
		}
	})
	return e.dropped
}

// headerSize is the size of the kernel's struct virtio_net_hdr before each frame.
const headerSize = 10

// way is one direction of a line.
type way struct {
	began time.Time
	more  chan struct{} // has a token when the queue has become non-empty

	mu     sync.Mutex
	model  *line.Way
	queue  []flight // in the order in which they come out
	failed uint64
}

// flight is a frame on its way.
type flight struct {
	at    time.Duration // when it comes out, counted from began
	to    *end
	frame []byte // with the kernel's header
}

func newWay(model *line.Way, began time.Time) *way {
	return &way{began: began, model: model, more: make(chan struct{}, 1)}
}

func (w *way) counted() line.Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.model.Counts()
}

func (w *way) refused() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// read takes frames onto the way until from is closed, or its interface is gone.
func (w *way) read(from, to *end) {
	buffer := make([]byte, 1<<17)
	for {
		n, err := from.file.Read(buffer)
		switch {
		case errors.Is(err, unix.ENETDOWN): // reported once, when the interface goes down; it may come up again
			continue
		case err != nil:
			return
		case n > headerSize:
			w.take(buffer[:n], to)
		}
	}
}

func (w *way) take(frame []byte, to *end) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// The time is taken here: the order in which frames get here is their order of arrival.
	at, fate := w.model.Send(time.Since(w.began), len(frame)-headerSize)
	if fate != line.Delivered {
		return
	}
	w.queue = append(w.queue, flight{at: at, to: to, frame: append([]byte(nil), frame...)})
	if len(w.queue) == 1 {
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
}

// run releases frames in time.
func (w *way) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, ok := w.due()
		if !ok {
			select {
			case <-w.more:
				continue
			case <-ctx.Done():
				return
			}
		}
		if wait := next.at - time.Since(w.began); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		w.out()
		// A cable that was taken off, or whose machine has no power, accepts nothing.
		if _, err := next.to.file.Write(next.frame); err != nil && !errors.Is(err, os.ErrClosed) {
			w.mu.Lock()
			w.failed++
			w.mu.Unlock()
		}
	}
}

// due returns the frame that comes out next.
func (w *way) due() (flight, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return flight{}, false
	}
	return w.queue[0], true
}

// out removes the first frame of the queue.
func (w *way) out() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue[0] = flight{}
	w.queue = w.queue[1:]
}
