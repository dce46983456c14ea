// Package ends holds what a program takes from its machine, as values: clocks, random numbers and the network. All code that a
// simulation runs uses this package in place of time.Now, time.Since, time.Until, clock.PassiveClock, math/rand's globals,
// net.Dialer and net.Listen.
//
// A machine has two clocks, because they answer different questions. The wall clock tells the time of day. It may step and may be
// wrong by decades: use it for times that leave the process, and to compare with a time from elsewhere. The running clock tells
// how long the machine has run. It never steps, and stands still while the machine is suspended: use it for durations. time.Now
// returns both in one value, and the subtraction decides which one counts. In a testing/synctest bubble both are one clock.
// Timers stay with package time.
//
// An interface for each clock was the alternative. With these structs the zero value is the real machine, so no Config needs a
// default.
package ends

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/google/uuid"
)

// Ends are what a part takes from its machine. The zero value is this machine's.
type Ends struct {
	Clock
	Chance
	Net
}

// Clock is a machine's two clocks. The zero value is this machine's. It is safe for concurrent use if its functions are.
type Clock struct {
	// OfDay tells the wall clock's time, Ran the running clock's. nil means this machine's.
	OfDay, Ran func() time.Time
	// Boot returns an ID of the machine's present boot, and the time since that boot, including suspension. nil means that the
	// kernel is asked.
	Boot func() (id string, since time.Duration)
}

// Wall returns the machine's time of day. Subtracting two such times uses the wall clock.
func (c Clock) Wall() time.Time {
	if c.OfDay != nil {
		return c.OfDay()
	}
	return time.Now().Round(0)
}

// Running returns a time of the running clock. Only its distance from other such times of the same process has a meaning.
func (c Clock) Running() time.Time {
	if c.Ran != nil {
		return c.Ran()
	}
	return time.Now()
}

// Since returns how long the machine has run since a time of the running clock.
func (c Clock) Since(moment time.Time) time.Duration { return c.Running().Sub(moment) }

// Until returns how long the machine has to run until a time of the running clock.
func (c Clock) Until(moment time.Time) time.Duration { return moment.Sub(c.Running()) }

// Now returns the present time by both clocks.
func (c Clock) Now() Moment { return Moment{Running: c.Running(), Wall: c.Wall()} }

// Moment is a time by both clocks of a machine. The zero value means none.
type Moment struct{ Running, Wall time.Time }

// IsZero reports whether m is no moment.
func (m Moment) IsZero() bool { return m == Moment{} }

// Sub returns the time from an earlier moment to m, by the clock that shows more. The running clock stands still while the
// machine sleeps or its virtual machine is paused. A step of the wall clock can only make the result longer.
func (m Moment) Sub(from Moment) time.Duration {
	return max(m.Running.Sub(from.Running), m.Wall.Sub(from.Wall))
}

// Chance is the source of random numbers, except for keys. The zero value is this machine's.
type Chance struct {
	// Source must be safe for concurrent use.
	Source rand.Source
}

// Float64 returns a number in [0, 1).
func (c Chance) Float64() float64 {
	if c.Source != nil {
		return rand.New(c.Source).Float64()
	}
	return rand.Float64()
}

// Int64N returns a number in [0, n). It panics if n is not positive.
func (c Chance) Int64N(n int64) int64 {
	if c.Source != nil {
		return rand.New(c.Source).Int64N(n)
	}
	return rand.Int64N(n)
}

// Perm returns the numbers in [0, n) in a random order.
func (c Chance) Perm(n int) []int {
	if c.Source != nil {
		return rand.New(c.Source).Perm(n)
	}
	return rand.Perm(n)
}

// UUID returns a random UUID.
func (c Chance) UUID() string {
	if c.Source == nil {
		return uuid.NewString()
	}
	random := binary.NativeEndian.AppendUint64(nil, c.Source.Uint64())
	random = binary.NativeEndian.AppendUint64(random, c.Source.Uint64())
	return uuid.Must(uuid.NewRandomFromReader(bytes.NewReader(random))).String()
}

// Below returns a duration in [0, d). It panics if d is not positive.
func (c Chance) Below(d time.Duration) time.Duration { return time.Duration(c.Int64N(int64(d))) }

// Jitter returns d, extended by a random part of it, below most. It is wait.Jitter with these random numbers.
func (c Chance) Jitter(d time.Duration, most float64) time.Duration {
	return d + time.Duration(c.Float64()*most*float64(d))
}

// Net is the network of a machine, in both directions. The zero value is this machine's: a nil function means that of package
// net.
type Net struct {
	// Dial opens a connection to an address, HOST:PORT. DialNear does the same for an address on the same LAN, and notices sooner
	// when the machine there has lost its power.
	Dial, DialNear func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen listens at an address.
	Listen func(network, address string) (net.Listener, error)
	// Lookup returns the addresses of a name, best first.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}
