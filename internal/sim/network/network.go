// Package network is the simulation's network: hosts, paths between them, and TCP connections over the paths, in the time of a
// testing/synctest bubble.
//
// Segments arrive one by one. The next one arrives only when all goroutines of the bubble wait. So what happens depends only on
// the order of arrivals, which is by time, then by connection.
//
// To its users, a connection behaves as TCP does. Segments keep their order. A lost segment is sent again after 200 ms, then
// after twice as long each time, up to two minutes. So a connection does not notice at once that its path works again. After 15
// minutes without progress the sender gets an error. A host that has forgotten a connection answers with a reset.
//
// Acknowledgements and windows are not modelled. If one direction of a connection is silent, bytes still arrive in the other. A
// writer waits while 256 KiB of its bytes have not been read.
package network

import (
	"cmp"
	"container/heap"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing/synctest"
	"time"
)

// Path is the way from one host to another, in one direction. The zero value delivers at once.
type Path struct {
	// Delay is how long a segment travels, and Jitter the most that chance adds to that.
	Delay, Jitter time.Duration
	// Loss is the share of segments that are lost, in [0, 1).
	Loss float64
	// Rate is in bytes a second. Queue is how many bytes may wait to be sent at that rate; a segment beyond that is lost. 0 means
	// no limit.
	Rate, Queue int
	// Most is the largest size of a segment in bytes. A larger segment is lost, and nobody is told. 0 means no limit.
	Most int
	// Silent means that nothing arrives. Refuses means that every segment is answered by a reset.
	Silent, Refuses bool
	// Forgets is how long a connection may be idle; 0 means for ever. After a longer pause none of its segments arrives any more,
	// in either direction.
	Forgets time.Duration
}

const (
	// segment is the size of a full segment: 1500 bytes less two headers. Path.Most and losses are judged by it.
	segment = 1448
	// firstAgain and longestAgain bound the time until TCP sends a segment again (Linux's TCP_RTO_MIN and TCP_RTO_MAX).
	firstAgain, longestAgain = 200 * time.Millisecond, 2 * time.Minute
	// connectAgain is the time until TCP sends the first segment of a connection again (TCP_TIMEOUT_INIT).
	connectAgain = time.Second
	// givesUp is about the time after which Linux gives up a connection (tcp_retries2 = 15: 924 s).
	givesUp = 15 * time.Minute
	// connectGivesUp is the time after which Linux gives up opening a connection (tcp_syn_retries = 6: 127 s).
	connectGivesUp = 127 * time.Second
	// unread is how many bytes of a direction may wait to be read.
	unread = 256 << 10
)

// Network is a set of hosts. Make one with New.
type Network struct {
	mu     sync.Mutex
	chance *rand.Rand
	hosts  map[string]*Host
	routes map[string]*Host // by IP address
	paths  map[way]*direction
	events events
	order  uint64
	more   chan struct{} // has room for one; an event was added
}

type way struct{ from, to string }

// direction is a path with its queue.
type direction struct {
	Path
	busy time.Time // when the last byte that waits for Rate has left
}

// New returns a network without hosts. The source decides losses and jitter. Nobody else may draw from it.
func New(source rand.Source) *Network {
	return &Network{
		chance: rand.New(source), hosts: map[string]*Host{}, routes: map[string]*Host{}, paths: map[way]*direction{},
		more: make(chan struct{}, 1),
	}
}

// Run delivers segments until ctx ends. It must run in a goroutine of the bubble, and nobody else may call synctest.Wait.
func (n *Network) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		n.mu.Lock()
		wait := time.Duration(-1)
		if len(n.events) > 0 {
			wait = max(0, time.Until(n.events[0].at))
		}
		n.mu.Unlock()
		if wait == 0 {
			synctest.Wait() // whatever else is sent in this instant has its place in the order
			n.deliver()
			continue
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
		case <-n.more:
		case <-due:
		}
	}
}

// deliver lets the first event happen, if it is due.
func (n *Network) deliver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.events) > 0 && !n.events[0].at.After(time.Now()) {
		heap.Pop(&n.events).(*event).happen() //nolint:forcetypeassert // as events have it
	}
}

// after adds an event that happens after a time. n.mu is held.
func (n *Network) after(d time.Duration, key string, happen func()) {
	n.order++
	heap.Push(&n.events, &event{time.Now().Add(d), key, n.order, happen})
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// Set changes the path from one host to another, by their names, from now on.
func (n *Network) Set(from, to string, p Path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.path(from, to).Path = p
}

// Get returns the path from one host to another.
func (n *Network) Get(from, to string) Path {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.path(from, to).Path
}

func (n *Network) path(from, to string) *direction {
	p := n.paths[way{from, to}]
	if p == nil {
		p = &direction{}
		n.paths[way{from, to}] = p
	}
	return p
}

// Host returns the host with a name, and makes it if there is none. The IP address leads to this host from now on.
func (n *Network) Host(name, ip string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &Host{
			Name: name, network: n, processes: map[*Process]struct{}{}, listeners: map[string]*listener{},
			dialed: map[string]int{},
		}
		n.hosts[name] = h
	}
	h.ip = ip
	n.routes[ip] = h
	return h
}

// passes says whether a segment that is sent now leaves the sender, and how long it travels. n.mu is held.
func (d *direction) passes(chance *rand.Rand, size int) (travels time.Duration, ok bool) {
	full := min(size, segment)
	switch {
	case d.Silent, d.Most > 0 && full > d.Most:
		return 0, false
	case d.Loss > 0 && chance.Float64() < d.Loss:
		return 0, false
	}
	travels = d.Delay
	if d.Jitter > 0 {
		travels += time.Duration(chance.Int64N(int64(d.Jitter)))
	}
	if d.Rate > 0 {
		now := time.Now()
		if d.busy.Before(now) {
			d.busy = now
		}
		waits := d.busy.Sub(now)
		if d.Queue > 0 && int(waits.Seconds()*float64(d.Rate))+full > d.Queue {
			return 0, false
		}
		d.busy = d.busy.Add(time.Duration(float64(size) / float64(d.Rate) * float64(time.Second)))
		travels += d.busy.Sub(now)
	}
	return travels, true
}

// event is something that happens at a time. Of several events at the same time, the one with the lesser key comes first. If the
// keys are equal, too, the older event comes first.
type event struct {
	at     time.Time
	key    string
	order  uint64
	happen func()
}

type events []*event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), cmp.Compare(e[i].key, e[j].key), cmp.Compare(e[i].order, e[j].order)) < 0
}
func (e *events) Push(x any) { *e = append(*e, x.(*event)) } //nolint:forcetypeassert // heap gives what Network.after gave it
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// failed is an error of a connection, as package net words it.
func failed(op string, to net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: to, Err: err}
}
