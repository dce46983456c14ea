// Package line is the model of a link that has a rate, a delay, jitter, loss and a queue. It moves no frames and has no
// clock: it is told when frames come, and says when each one comes out, or that it does not. So a table can test it
// exactly; package wire does what it says with real frames.
//
// A frame first waits for those before it, in a queue of so many bytes: one that finds no room is dropped. Then it is sent,
// which takes its size at the link's rate. Then it is lost, or is on its way for the delay, more or less by the jitter.
// Frames never overtake each other: one that would waits for the one before it.
//
// Loss and jitter are drawn from a seeded source, two numbers for each frame in the order in which they come, whatever
// becomes of the frame. So the same seed loses the same frames of the same sequence, at any rate and with any queue.
package line

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Shape is what a link is like, one way. The zero Shape changes nothing.
type Shape struct {
	// Rate is in bits a second, of whole Ethernet frames (without preamble and checksum); 0: no limit.
	Rate uint64 `json:"rate,omitempty"`
	// Delay is how long a frame is on its way after it has been sent. Each frame's differs from it by at most Jitter, up or
	// down, evenly.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// Loss is the probability with which a frame is lost, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// Queue is how many bytes of frames may wait while another is sent; 0: up to MaxHeld. A frame that need not wait
	// is never too large.
	Queue int `json:"queue,omitempty"`
}

// MaxHeld is how many bytes a link holds at most, waiting and on their way, whatever its Shape: a link without a rate and with
// a delay would else hold as much as the sender can make. A frame beyond it is dropped, as one that finds no room in the queue.
const MaxHeld = 64 << 20

// maxDelay keeps a mistyped unit from looking like a cut.
const maxDelay = time.Minute

// Validate returns an error that says what must be different.
func (s Shape) Validate() error {
	switch {
	case s == Shape{}:
		return errors.New("a shape that changes nothing: give a rate, a delay or a loss")
	case s.Delay < 0 || s.Delay > maxDelay:
		return fmt.Errorf("delay %v: want 0 to %v", s.Delay, maxDelay)
	case s.Jitter < 0 || s.Jitter > s.Delay:
		return fmt.Errorf("jitter %v: want 0 to the delay, %v, which it is more or less", s.Jitter, s.Delay)
	case !(s.Loss >= 0 && s.Loss <= 1):
		return fmt.Errorf("loss %v: want 0 to 1", s.Loss)
	case s.Queue < 0 || s.Queue > MaxHeld:
		return fmt.Errorf("queue of %d bytes: want 0 to %d", s.Queue, MaxHeld)
	case s.Queue > 0 && s.Rate == 0:
		return errors.New("a queue without a rate: nothing waits where nothing is slow")
	}
	return nil
}

// String names what differs from an unlimited link, as the command line does.
func (s Shape) String() string {
	var all []string
	if s.Rate > 0 {
		all = append(all, "rate "+FormatRate(s.Rate))
	}
	if s.Delay > 0 {
		all = append(all, "delay "+s.Delay.String())
	}
	if s.Jitter > 0 {
		all = append(all, "jitter "+s.Jitter.String())
	}
	if s.Loss > 0 {
		all = append(all, "loss "+FormatLoss(s.Loss))
	}
	if s.Queue > 0 {
		all = append(all, "queue "+FormatSize(s.Queue))
	}
	return strings.Join(all, ", ")
}

// Fate is what becomes of a frame.
type Fate uint8

// Fates.
const (
	// Delivered: it comes out at the far end.
	Delivered Fate = iota
	// Lost: it was sent, and vanished on its way.
	Lost
	// Overflowed: it found no room in the queue.
	Overflowed
)

// String returns the fate's name.
func (f Fate) String() string { return [...]string{"delivered", "lost", "overflowed"}[f] }

// Counts is what has come to one direction of a link. What is neither lost nor overflowed is delivered.
type Counts struct {
	Frames     uint64 `json:"frames"`
	Bytes      uint64 `json:"bytes"`
	Lost       uint64 `json:"lost"`
	Overflowed uint64 `json:"overflowed"`
}

// Way is one direction of a link. It is not safe for use by several goroutines.
type Way struct {
	shape  Shape
	source *rand.PCG
	counts Counts

	now time.Duration // when the last frame came
	// free is when all frames before are sent; spare is the part of a nanosecond beyond it, in units of 1/Rate.
	free  time.Duration
	spare uint64
	last  time.Duration // when the last delivered frame comes out

	waiting held // each until its sending begins
	all     held // each delivered one until it comes out
}

// NewWay returns a direction of a link. Directions and links of one seed differ by their names.
func NewWay(shape Shape, seed uint64, name string) *Way {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	return &Way{shape: shape, source: rand.NewPCG(seed, h.Sum64())}
}

// Send takes a frame of size bytes that comes at a time, counted from any one moment, and returns when it comes out; the time
// means nothing for a frame that does not. A time before the last frame's counts as the last frame's.
func (w *Way) Send(at time.Duration, size int) (time.Duration, Fate) {
	lost, jitter := w.uniform() < w.shape.Loss, w.uniform()
	w.now = max(w.now, at)
	w.waiting.release(w.now)
	w.all.release(w.now)
	w.counts.Frames++
	w.counts.Bytes += uint64(size)

	begins := max(w.now, w.free)
	waits := begins > w.now
	if waits && w.shape.Queue > 0 && w.waiting.bytes+size > w.shape.Queue || w.all.bytes+size > MaxHeld {
		w.counts.Overflowed++
		return 0, Overflowed
	}
	if waits {
		w.waiting.add(begins, size)
	}
	if w.now > w.free { // it was idle
		w.spare = 0
	}
	w.free = begins + w.sending(size)
	if lost {
		w.counts.Lost++
		return 0, Lost
	}
	out := w.free + w.shape.Delay + time.Duration((2*jitter-1)*float64(w.shape.Jitter))
	w.last = max(w.last, out)
	w.all.add(w.last, size)
	return w.last, Delivered
}

// sending is how long a frame takes at the link's rate. What is cut off for whole nanoseconds is added to the next frame's, so
// that a link that is never idle keeps its rate to the bit.
func (w *Way) sending(size int) time.Duration {
	if w.shape.Rate == 0 {
		return 0
	}
	all := uint64(size)*8*uint64(time.Second) + w.spare
	w.spare = all % w.shape.Rate
	return time.Duration(all / w.shape.Rate)
}

// uniform is the source's next number, 0 or more and below 1.
func (w *Way) uniform() float64 { return float64(w.source.Uint64()>>11) / (1 << 53) }

// Counts returns what has come so far.
func (w *Way) Counts() Counts { return w.counts }

// held is bytes of frames, each until a time; the times never fall.
type held struct {
	frames []holding
	bytes  int
}

type holding struct {
	until time.Duration
	size  int
}

func (h *held) add(until time.Duration, size int) {
	h.frames = append(h.frames, holding{until, size})
	h.bytes += size
}

// release forgets what is held until now at the latest.
func (h *held) release(now time.Duration) {
	n := 0
	for n < len(h.frames) && h.frames[n].until <= now {
		h.bytes -= h.frames[n].size
		n++
	}
	h.frames = h.frames[n:]
}
