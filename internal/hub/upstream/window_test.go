package upstream

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// pipe is a line with one bottleneck, a sender that has without end and minds only the receiver's window and slow start, and us.
type pipe struct {
	rate  float64       // bytes per second
	trip  time.Duration // without queue
	queue int           // bytes that may wait
	loss  float64

	now     time.Duration
	free    time.Duration // when the bottleneck has sent what it has
	sent    int           // bytes, as are the following
	arrived int
	edge    int // up to which we let it send
	cwnd    int
	lost    int
	waits   []time.Duration // in the queue, of all that was sent
	flights []flight
	rand    *rand.Rand
}

type flight struct {
	at   time.Duration
	size int
}

const segment = 1448

// run sends for a time, and returns the rate in the second half of it, and the longest and the median wait in the queue then.
func (p *pipe) run(w *window, long time.Duration) (rate float64, longest time.Duration) {
	p.rand = rand.New(rand.NewPCG(1, 2))
	p.cwnd, p.edge = 10*segment, 64<<10
	half, from := p.arrived, 0
	halfway := p.now + long/2
	end := p.now + long
	for p.now < end {
		for p.sent+segment <= min(p.edge, p.arrived+p.cwnd) {
			p.send()
		}
		if len(p.flights) == 0 {
			panic("deadlock: the window is shut")
		}
		f := p.flights[0]
		p.flights = p.flights[1:]
		before := p.now
		p.now = f.at
		if before < halfway && p.now >= halfway {
			half, from = p.arrived, len(p.waits)
		}
		p.arrived += f.size
		p.cwnd += f.size // slow start; its end, by a loss, is not of interest here
		if w != nil {
			w.received(time.Unix(0, 0).Add(p.now), f.size, p.trip)
			p.edge = max(p.edge, p.arrived+w.size) // never back
		} else {
			p.edge = p.arrived + mostWindow
		}
	}
	for _, wait := range p.waits[from:] {
		longest = max(longest, wait)
	}
	return float64(p.arrived-half) / (p.now - halfway).Seconds(), longest
}

// send puts a segment into the queue; our acknowledgement of what came was half a round trip ago.
func (p *pipe) send() {
	at := p.now + p.trip/2
	wait := max(p.free-at, 0)
	p.sent += segment
	if wait.Seconds()*p.rate > float64(p.queue) || p.rand.Float64() < p.loss {
		// Sent again after a round trip; for this model it just comes later, and the sender halves.
		p.lost++
		p.cwnd = max(p.cwnd/2, 2*segment)
		wait += p.trip
	}
	p.waits = append(p.waits, wait)
	p.free = at + wait + time.Duration(segment/p.rate*float64(time.Second))
	p.flights = append(p.flights, flight{p.free + p.trip/2, segment})
}

// received takes in that n bytes came, as pacer does.
func (w *window) received(at time.Time, n int, trip time.Duration) {
	if w.due(at, n, trip) {
		w.next(at, trip)
	}
}

// TestWindowOnALine: on each line nearly all of its rate is used, and the queue stays near the target.
func TestWindowOnALine(t *testing.T) {
	for _, line := range []struct {
		bits  float64
		trip  time.Duration
		share float64 // of the line's rate, at least
	}{
		{128e3, 600 * time.Millisecond, 0.95},
		{128e3, 40 * time.Millisecond, 0.95},
		{1e6, 40 * time.Millisecond, 0.95},
		{1e6, 700 * time.Millisecond, 0.95},
		{10e6, 40 * time.Millisecond, 0.95},
		{10e6, 300 * time.Millisecond, 0.95},
		{50e6, 20 * time.Millisecond, 0.95},
	} {
		t.Run(fmt.Sprintf("%.0f kbit %v", line.bits/1e3, line.trip), func(t *testing.T) {
			w := newWindow(0)
			p := pipe{rate: line.bits / 8, trip: line.trip, queue: 4 << 20}
			rate, longest := p.run(&w, 40*time.Second)
			t.Logf("%.0f kbit/s, waits up to %v, window %d", rate*8/1e3, longest, w.size)
			if rate*8 < line.share*line.bits {
				t.Errorf("%.0f kbit/s of %.0f", rate*8/1e3, line.bits/1e3)
			}
			if floor := time.Duration(leastWindow / p.rate * float64(time.Second)); longest > max(floor, 2*queueTarget) {
				t.Errorf("the queue was up to %v long", longest)
			}
		})
	}
}

// TestWithoutAWindow is what the window is for: the same thin line's queue is full.
func TestWithoutAWindow(t *testing.T) {
	p := pipe{rate: 16e3, trip: 600 * time.Millisecond, queue: 64 << 10}
	if _, longest := p.run(nil, 40*time.Second); longest < 3*time.Second {
		t.Errorf("the queue was only %v long: the model shows nothing", longest)
	}
}

func TestWindowRounds(t *testing.T) {
	at := time.Unix(0, 0)
	w := newWindow(0)
	come := func(after time.Duration, n int) {
		at = at.Add(after)
		w.received(at, n, 100*time.Millisecond)
	}
	for i, step := range []struct {
		after   time.Duration
		n, want int
	}{
		{0, 10 << 10, 32 << 10},                      // begins a round
		{100 * time.Millisecond, 16 << 10, 32 << 10}, // not yet a window
		{100 * time.Millisecond, 16 << 10, 64 << 10}, // 160 KB/s: twice, no more at a time
		{time.Minute, 1 << 20, 64 << 10},             // a quiet time says nothing
		{600 * time.Millisecond, 6 << 10, 48 << 10},  // slow: down by a quarter at a time
		{600 * time.Millisecond, 6 << 10, 36 << 10},  // and again
		{600 * time.Millisecond, 6 << 10, 27 << 10},
		{600 * time.Millisecond, 6 << 10, 20736}, // and again
		{600 * time.Millisecond, 6 << 10, leastWindow},
		{600 * time.Millisecond, 6 << 10, leastWindow},
		{time.Nanosecond, 1 << 20, 2 * leastWindow}, // read late
	} {
		if come(step.after, step.n); w.size != step.want {
			t.Fatalf("step %d: window %d, want %d", i, w.size, step.want)
		}
	}
	for range 40 {
		come(100*time.Millisecond, mostWindow)
	}
	if w.size != mostWindow {
		t.Errorf("window %d, want at most %d", w.size, mostWindow)
	}
}
