package world

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/sim/network"
)

// machine is a computer: its place in the network, its clocks, its disk, and its programs.
type machine struct {
	name, ip string
	world    *World
	host     *network.Host
	dir      string

	mu       sync.Mutex
	off      time.Duration // by how much the wall clock is wrong
	stood    time.Duration // for how long the running clock has stood
	standing time.Time     // since when it stands; zero: it runs

	programs map[string]*program
}

func (w *World) machine(name, ip string) (*machine, error) {
	m := &machine{
		name: name, ip: ip, world: w, host: w.net.Host(name, ip), dir: filepath.Join(w.dir, name),
		programs: map[string]*program{},
	}
	w.machines[name] = m
	return m, os.MkdirAll(m.dir, 0o700)
}

// clock returns the machine's clocks. The bubble's clock shows the true time.
func (m *machine) clock() ends.Clock {
	return ends.Clock{OfDay: m.wall, Ran: m.ran, Boot: func() (string, time.Duration) { return m.name, m.ran().Sub(began) }}
}

func (m *machine) wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.off)
}

func (m *machine) ran() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.standing.IsZero() {
		now = m.standing
	}
	return now.Add(-m.stood)
}

// step sets by how much the wall clock is wrong.
func (m *machine) step(off time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = off
}

// suspend stops the machine: nothing leaves or arrives, and the running clock stands still. With resume it goes on.
func (m *machine) suspend() {
	m.host.Shut(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.standing.IsZero() {
		m.standing = time.Now()
	}
}

func (m *machine) resume() {
	m.mu.Lock()
	since := m.standing
	if !since.IsZero() {
		m.stood += time.Since(since)
		m.standing = time.Time{}
	}
	m.mu.Unlock()
	if n := m.world.node(m.name); n != nil && !since.IsZero() {
		n.beats.resumed(since)
	}
	m.host.Shut(false)
}

// program is something that runs on a machine, and can be started again.
type program struct {
	of   *machine
	name string
	// wired means that the program reaches its machine's own API server without the network. A machine is suspended by cutting
	// off its network, which does not stop such a program. So the program is killed while its machine is suspended.
	wired bool
	run   func(ctx context.Context, net *network.Process) error
	net   atomic.Pointer[network.Process]
	end   context.CancelFunc
	done  chan struct{}
}

// program adds a program to the machine. It runs after a call of start.
func (m *machine) program(name string, run func(ctx context.Context, net *network.Process) error) *program {
	p := &program{of: m, name: name, run: run}
	m.programs[name] = p
	return p
}

// startsAgain is how long systemd and kubelet wait before they start a program that has ended.
const startsAgain = 5 * time.Second

// start starts the program, unless it runs. If the program ends by itself, it is started again after startsAgain.
func (p *program) start() {
	if p.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.end, p.done = cancel, make(chan struct{})
	p.net.Store(p.of.host.Process())
	go func(done chan struct{}) {
		defer close(done)
		for {
			err := p.run(ctx, p.net.Load())
			if ctx.Err() != nil {
				return
			}
			p.of.world.say("%s of %s has ended: %v", p.name, p.of.name, err)
			p.net.Load().Kill()
			select {
			case <-time.After(startsAgain):
			case <-ctx.Done():
				return
			}
			p.net.Store(p.of.host.Process())
		}
	}(p.done)
}

// kill ends the program as SIGKILL does: first it can send nothing more, then it ends.
func (p *program) kill() {
	if p.done == nil {
		return
	}
	p.net.Load().Kill()
	p.wait()
}

// stop ends the program as SIGTERM does.
func (p *program) stop() {
	if p.done == nil {
		return
	}
	p.wait()
	p.net.Load().Kill()
}

func (p *program) wait() {
	p.end()
	<-p.done
	p.done = nil
}
