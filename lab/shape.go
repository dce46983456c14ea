package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yurtcoordinator/lab/line"
	"yurtcoordinator/lab/machine"
	"yurtcoordinator/lab/wire"
)

// LinkShape describes links: see Lab.Shape.
type LinkShape struct {
	line.Shape

	// Seed decides which frames are lost, and how long each is delayed.
	Seed uint64 `json:"seed"`
	// Shared makes one line of all links of the target, like a site whose nodes share an uplink.
	Shared bool `json:"shared,omitempty"`
}

// LineStatus is the line of a link, and what all links on it together have carried since it was made.
type LineStatus struct {
	// Name is the node and the network if the link has the line to itself, otherwise the pool and the network. Which frames are
	// lost depends on the name with a space and the direction (up or down) after it, and on the seed.
	Name string `json:"name"`
	LinkShape
	wire.Carriage
}

// shapedLine is a running line.
type shapedLine struct {
	wire  *wire.Line
	name  string
	shape LinkShape
	end   func() // ends it and waits until it has ended
}

func startLine(name string, shape LinkShape) *shapedLine {
	s := &shapedLine{wire: wire.NewLine(name, shape.Shape, shape.Seed), name: name, shape: shape}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.wire.Run(ctx)
	}()
	s.end = func() {
		cancel()
		<-ended
	}
	return s
}

// status returns nil for no line.
func (s *shapedLine) status() *LineStatus {
	if s == nil {
		return nil
	}
	return &LineStatus{Name: s.name, LinkShape: s.shape, Carriage: s.wire.Counted()}
}

// Shape gives the links of a target (NODE or pool/POOL) to a network a shape, in both directions, and replaces an earlier one.
// The shape outlives cuts and power cuts. Frames that are on their way on the old line are lost.
func (l *Lab) Shape(network Network, target string, shape LinkShape) error {
	if err := shape.Validate(); err != nil {
		return err
	}
	which, err := targets(l.all, target)
	if err != nil {
		return err
	}
	if !shape.Shared {
		return l.reline(network, which, func(c link) *shapedLine { return startLine(c.name(), shape) })
	}
	name, ok := strings.CutPrefix(target, "pool/")
	if !ok {
		return fmt.Errorf("%s is one node: a pool, as in pool/%s, can share a line", target, which[0].poolName())
	}
	one := startLine(name+" "+string(network), shape)
	return l.reline(network, which, func(link) *shapedLine { return one })
}

// Unshape removes the shape of target's links.
func (l *Lab) Unshape(network Network, target string) error {
	which, err := targets(l.all, target)
	if err != nil {
		return err
	}
	return l.reline(network, which, func(link) *shapedLine { return nil })
}

// reline puts the links on the lines that onto returns (nil means none), and ends the lines that no link uses any more.
func (l *Lab) reline(network Network, which []place, onto func(link) *shapedLine) error {
	l.shaping.Lock()
	defer l.shaping.Unlock()
	var errs []error
	made := map[*shapedLine]bool{}
	for _, p := range which {
		to := onto(link{p, network})
		if to != nil {
			made[to] = true
		}
		errs = append(errs, l.relink(link{p, network}, to, made))
	}
	l.mu.Lock()
	for _, used := range l.lines {
		delete(made, used)
	}
	l.mu.Unlock()
	for idle := range made {
		idle.end()
	}
	return errors.Join(errs...)
}

// relink puts one link on a line; nil means none. The old line becomes a candidate to be ended.
func (l *Lab) relink(c link, to *shapedLine, candidates map[*shapedLine]bool) error {
	h := l.hosts[string(c.node.name())]
	h.busy.Lock()
	defer h.busy.Unlock()
	l.mu.Lock()
	if was := l.lines[c]; was != nil {
		candidates[was] = true
	}
	delete(l.lines, c)
	m := h.machine
	l.mu.Unlock()

	if m != nil {
		if err := h.switchOver(c, to, m); err != nil {
			return err
		}
	}
	if to != nil {
		l.mu.Lock()
		l.lines[c] = to
		l.mu.Unlock()
	}
	return nil
}

// switchOver moves a cable of a machine that has power, and so has its addresses. The caller holds h.busy.
func (h *host) switchOver(c link, to *shapedLine, m *machine.Machine) error {
	if on := h.shaped[c.network]; on != nil {
		delete(h.shaped, c.network)
		if err := errors.Join(on.Close(), c.cable(nil).Direct(m.PID)); err != nil {
			return err
		}
	}
	if to == nil {
		return nil
	}
	carried, err := to.wire.Carry(c.cable(nil), m.PID)
	if err != nil {
		return err
	}
	h.shaped[c.network] = carried
	return nil
}

// carry puts the cables of a machine that was just plugged in on their lines. The caller holds h.busy.
func (l *Lab) carry(h *host, m *machine.Machine) error {
	l.mu.Lock()
	lines := maps.Clone(l.lines)
	l.mu.Unlock()
	for _, network := range []Network{WAN, LAN} {
		c := link{h.place, network}
		if to := lines[c]; to != nil {
			if err := h.switchOver(c, to, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// offLines takes the cables of a machine without power off their lines. The caller holds h.busy.
func (h *host) offLines() error {
	var errs []error
	for network, on := range h.shaped {
		delete(h.shaped, network)
		errs = append(errs, on.Close())
	}
	return errors.Join(errs...)
}

// endLines ends all lines, when the lab goes down.
func (l *Lab) endLines() {
	l.shaping.Lock()
	defer l.shaping.Unlock()
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.lines))
	clear(l.lines)
	l.mu.Unlock()
	for _, s := range all {
		s.end() // several times for a shared one, which does no harm
	}
}
