// Package line models a link that has a rate, a delay, jitter, loss and a queue. It moves no frames and has no clock. Callers
// say when a frame arrives, and the model answers when the frame comes out, or that it does not. So a table can test it
// exactly; package wire applies it to real frames.
//
// A frame first waits for earlier ones in a queue that holds a limited number of bytes; a frame that finds no room is dropped.
// Then it is sent, which takes time by its size and the link's rate. Then it is lost, or travels for the delay, plus or minus
// the jitter. Frames never overtake each other: a frame that would overtake another waits for it.
//
// Loss and jitter come from a seeded source, two numbers per frame in the order of arrival, whatever happens to the frame. So
// the same seed loses the same frames of the same sequence, at any rate and with any queue.
package line

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Shape describes a link one way. The zero Shape changes nothing.
type Shape struct {
	// Rate is in bits a second, of whole Ethernet frames (without preamble and checksum); 0 means no limit.
	Rate uint64 `json:"rate,omitempty"`
	// Delay is how long a frame travels after it was sent. A frame's actual time differs from Delay by at most Jitter, up or
	// down, uniformly.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// Loss is the probability that a frame is lost, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// Queue is how many bytes of frames may wait while another frame is sent; 0 means up to MaxHeld. A frame that need not wait
	// always fits.
	Queue int `json:"queue,omitempty"`
}

// MaxHeld is how many bytes a link holds at most, waiting and travelling, whatever its Shape. Without it, a link with a delay
// but no rate would hold as much as the sender can produce. A frame beyond MaxHeld is dropped, like one that finds no room in
// the queue.
const MaxHeld = 64 << 20

// maxDelay keeps a mistyped unit from looking like a cut.
const maxDelay = time.Minute

// Validate returns an error that says what to change.
func (s Shape) Validate() error {
	switch {
	case s == Shape{}:
		return errors.New("this shape changes nothing: give a rate, a delay or a loss")
	case s.Delay < 0 || s.Delay > maxDelay:
		return fmt.Errorf("delay %v: want 0 to %v", s.Delay, maxDelay)
	case s.Jitter < 0 || s.Jitter > s.Delay:
		return fmt.Errorf("jitter %v: want 0 to the delay, which is %v", s.Jitter, s.Delay)
	case !(s.Loss >= 0 && s.Loss <= 1):
		return fmt.Errorf("loss %v: want 0 to 1", s.Loss)
	case s.Queue < 0 || s.Queue > MaxHeld:
		return fmt.Errorf("queue of %d bytes: want 0 to %d", s.Queue, MaxHeld)
	case s.Queue > 0 && s.Rate == 0:
		return errors.New("a queue needs a rate: without one, no frame waits")
	}
	return nil
}

// String names what differs from an unlimited link, in the command line's words.
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

// Fate is what happens to a frame.
type Fate uint8

// Fates.
const (
	// Delivered: it comes out at the far end.
	Delivered Fate = iota
	// Lost: it was sent, and vanished on the way.
	Lost
	// Overflowed: it found no room in the queue.
	Overflowed
)

// String returns the fate's name.
func (f Fate) String() string { return [...]string{"delivered", "lost", "overflowed"}[f] }

// Counts counts what arrived at one direction of a link. What is neither lost nor overflowed is delivered.
type Counts struct {
	Frames     uint64 `json:"frames"`
	Bytes      uint64 `json:"bytes"`
	Lost       uint64 `json:"lost"`
	Overflowed uint64 `json:"overflowed"`
}

// Way is one direction of a link. It is not safe for concurrent use.
type Way struct {
	shape  Shape
	source *rand.PCG
	counts Counts

	now time.Duration // when the last frame arrived
	// free is when all earlier frames are sent. spare is the part of a nanosecond beyond it, in units of 1/Rate.
	free  time.Duration
	spare uint64
	last  time.Duration // when the last delivered frame comes out

	waiting held // each until its sending begins
	all     held // each delivered one until it comes out
}

// NewWay returns a direction of a link. The name separates directions and links of one seed.
func NewWay(shape Shape, seed uint64, name string) *Way {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return &Way{shape: shape, source: rand.NewPCG(seed, h.Sum64())}
}

// Send takes a frame of size bytes and the time of its arrival, counted from any fixed moment. It returns the time when the
// frame comes out, which means nothing if it does not. A time before the last frame's counts as the last frame's.
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
	if w.now > w.free { // the link was idle
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

// sending returns how long a frame takes at the link's rate. The fraction that rounding to nanoseconds cuts off is added to the
// next frame, so that a link that is never idle keeps its rate to the bit.
func (w *Way) sending(size int) time.Duration {
	if w.shape.Rate == 0 {
		return 0
	}
	all := uint64(size)*8*uint64(time.Second) + w.spare
	w.spare = all % w.shape.Rate
	return time.Duration(all / w.shape.Rate)
}

// uniform returns the source's next number, at least 0 and below 1.
func (w *Way) uniform() float64 { return float64(w.source.Uint64()>>11) / (1 << 53) }

// Counts returns what has arrived so far.
func (w *Way) Counts() Counts { return w.counts }

// held counts bytes of frames, each until a time; the times never decrease.
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

// release forgets what is held no longer than now.
func (h *held) release(now time.Duration) {
	n := 0
	for n < len(h.frames) && h.frames[n].until <= now {
		h.bytes -= h.frames[n].size
		n++
	}
	h.frames = h.frames[n:]
}
