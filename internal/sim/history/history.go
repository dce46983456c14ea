// Package history has the histories of the simulation: what happens to a pool and its cloud, and when. It draws one by its
// seed, writes it as a table that a test can contain, and makes one that fails smaller, until nothing can be left out.
//
// It knows what can happen to what, and nothing about how: package world lets it happen, and judges what came of it.
package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// History is one run of the world. It can be compared with ==, but for its Events.
type History struct {
	// Seed is of all that the world draws.
	Seed uint64
	// Nodes and Coordinators of the pool; other pools and the healthy zone are the world's.
	Nodes, Coordinators int
	// Unrelayed says that the pool's hubs relay for nobody: a neighbour's line hides much of what coordinators are for.
	Unrelayed bool
	// Readers says that programs on each node read what changes in the cloud.
	Readers bool
	// Holds is for how long evictions from the pool are held when it is cut off as a whole; 0: not at all.
	Holds time.Duration
	// Long is how long things happen; after it, nothing is harmed, and the world rests.
	Long   time.Duration
	Events []Event
}

// Event is one thing that happens.
type Event struct {
	// At is when, For how long until it is mended; 0: it is not, or it is over at once.
	At, For time.Duration
	Does    Kind
	// On is to whom, To the other end of a path, or the Lease or user concerned; empty: everybody's.
	On, To string
	// How is one of the Kind's ways, Much how much of it, in the unit of the way.
	How  string
	Much float64
}

// Kind is what can happen.
type Kind string

// The kinds, by SIMULATION §3. The words behind are what How may be.
const (
	// Path: silent, refused, half (connections are forgotten), small (the largest segment, bytes), loss (share), thin (bytes/s),
	// far (s), forgets (idle s); "one way" is an Event for one direction: On to To, and not back. Both are machines.
	Path Kind = "path"
	// OneWay is the same for what On sends to To.
	OneWay Kind = "oneway"
	// Server: hang, readonly, slow (factor), and 401, 403, 422, 429, 500, 503. On is a server, To a node whose Lease or requests
	// it is about.
	Server Kind = "server"
	// Restore sets the cloud's storage back by Much seconds.
	Restore Kind = "restore"
	// Compact makes a server's storage forget its history.
	Compact Kind = "compact"
	// Machine: paused, suspended, dead (no power), blank (dead, and back without its disk).
	Machine Kind = "machine"
	// Program: one of a machine's programs is killed, and started again after For.
	Program Kind = "program"
	// Clock: a machine's wall clock is off by Much seconds.
	Clock Kind = "clock"
)

// ways are what How may be for each Kind, with what Much may be drawn from.
var ways = map[Kind][]way{
	Path: {
		{"silent", 4, nil}, {"refused", 1, nil}, {"half", 1, nil}, {"small", 1, amounts{576, 1200, 1400}},
		{"loss", 1, amounts{0.05, 0.3, 0.6}}, {"thin", 1, amounts{2000, 16000, 128000}}, {"far", 1, amounts{0.1, 0.6, 2, 8}},
		{"forgets", 1, amounts{5, 30}},
	},
	OneWay: {{"silent", 3, nil}, {"refused", 1, nil}, {"small", 1, amounts{576, 1200}}, {"loss", 1, amounts{0.3, 0.6}}},
	Server: {
		{"hang", 3, nil}, {"readonly", 3, nil}, {"slow", 1, amounts{10, 100}}, {"401", 1, nil}, {"403", 1, nil}, {"422", 1, nil},
		{"429", 1, amounts{0, 1, 20}}, {"500", 1, nil}, {"503", 2, amounts{0, 5}},
	},
	Restore: {{"", 1, amounts{5, 30, 120}}},
	Compact: {{"", 1, nil}},
	Machine: {{"paused", 1, nil}, {"suspended", 1, nil}, {"dead", 2, nil}, {"blank", 1, nil}},
	Program: {{"killed", 3, nil}, {"stopped", 1, nil}},
	Clock:   {{"", 1, amounts{-3600, -30, -1, 1, 30, 3600, -1.8e9, 2.5e9}}},
}

type (
	way struct {
		how    string
		weight int
		much   amounts
	}
	amounts []float64
)

// Cast is what Events can be about.
type Cast struct {
	// Paths are pairs of machines, Servers those that answer requests, Machines, Programs as MACHINE/PROGRAM.
	Paths             [][2]string
	Servers, Machines []string
	Programs, Nodes   []string
	// Pool is the place of all nodes together.
	Pool string
}

// Weights say how often a Kind is drawn, against the others.
type Weights map[Kind]int

// The weights of exploration: each theme, everything, and what harms who reads.
var (
	Data     = Weights{Path: 5, OneWay: 2, Server: 4, Compact: 2, Machine: 2, Program: 4}
	Links    = Weights{Path: 6, OneWay: 3, Machine: 1}
	Servers  = Weights{Server: 8, Compact: 1, Restore: 1, Path: 2, Program: 1}
	Machines = Weights{Machine: 4, Program: 4, Clock: 3, Path: 2}
	All      = Weights{Path: 4, OneWay: 2, Server: 4, Restore: 1, Compact: 1, Machine: 3, Program: 3, Clock: 2}
)

// soon is how soon after another event one comes that comes with it.
const soon = 90 * time.Second

// Random draws a history of 5 to 10 minutes and 4 to 12 events. Trouble comes together: half of the events are about a machine of
// the one drawn before, and come soon after it, if it has begun.
func Random(seed uint64, nodes, coordinators int, cast Cast, weights Weights) History {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	h := History{Seed: seed, Nodes: nodes, Coordinators: coordinators, Unrelayed: seed%2 == 1, Holds: holds[seed/2%4]}
	h.Long = 5*time.Minute + time.Duration(r.IntN(301))*time.Second
	for range 4 + r.IntN(9) {
		from, within, about := time.Duration(0), h.Long, cast
		if n := len(h.Events); n > 0 && r.IntN(2) == 0 {
			from = h.Events[n-1].At
			within, about = min(soon, h.Long-from), cast.about(h.Events[n-1].machine())
		}
		e, ok := about.draw(r, weights)
		if !ok { // that machine has no such thing
			e, ok = cast.draw(r, weights)
		}
		if ok {
			e.At = from + time.Duration(r.Int64N(int64(within/time.Second)))*time.Second
			e.For = lasts(r, e.Does)
			h.Events = append(h.Events, e)
		}
	}
	if cast.Pool != "" && r.IntN(3) == 0 {
		h.Events = append(h.Events, cast.cutOff(r, h.Long))
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return h
}

// holds are a day, which no history sees the end of, two times that some do, and none. It is a constant.
var holds = [...]time.Duration{24 * time.Hour, 2 * time.Minute, 5 * time.Minute, 0}

// lasts draws for how long: most faults are either a blip, or outlast every grace period.
func lasts(r *rand.Rand, k Kind) time.Duration {
	if k == Restore || k == Compact {
		return 0
	}
	seconds := []int{1, 3, 5, 12, 30, 60, 180}
	d := time.Duration(seconds[r.IntN(len(seconds))]) * time.Second
	return d + time.Duration(r.Int64N(int64(d/time.Second)))*time.Second/2
}

// cutOff draws how the whole pool is cut off, or loses its power, for long enough that its Pods would be evicted, or not quite.
func (c Cast) cutOff(r *rand.Rand, long time.Duration) Event {
	e := Event{Does: Path, On: c.Pool, To: "cloud", How: "silent"}
	if r.IntN(4) == 0 {
		e = Event{Does: Machine, On: c.Pool, How: "dead"}
	}
	e.At = time.Duration(r.Int64N(int64(long/2/time.Second))) * time.Second
	e.For = time.Duration(20+r.IntN(280)) * time.Second
	return e
}

// machine returns the machine that an event is about.
func (e Event) machine() string {
	name, _, _ := strings.Cut(e.On, "/")
	return name
}

// about returns what of the cast is of one machine.
func (c Cast) about(machine string) Cast {
	c.Paths = slices.DeleteFunc(slices.Clone(c.Paths), func(p [2]string) bool { return p[0] != machine && p[1] != machine })
	others := func(name string) bool {
		of, _, _ := strings.Cut(name, "/")
		return of != machine
	}
	for _, names := range []*[]string{&c.Servers, &c.Machines, &c.Programs} {
		*names = slices.DeleteFunc(slices.Clone(*names), others)
	}
	return c
}

func (c Cast) draw(r *rand.Rand, weights Weights) (e Event, ok bool) {
	kinds := slices.Sorted(func(yield func(Kind) bool) {
		for k := range weights {
			if !yield(k) {
				return
			}
		}
	})
	e.Does = pick(r, kinds, func(k Kind) int { return weights[k] })
	w := pick(r, ways[e.Does], func(w way) int { return w.weight })
	if e.How = w.how; len(w.much) > 0 {
		e.Much = w.much[r.IntN(len(w.much))]
	}
	of := map[Kind][]string{Server: c.Servers, Restore: {"cloud"}, Compact: c.Servers, Machine: c.Machines, Program: c.Programs,
		Clock: c.Machines}
	switch e.Does {
	case Path, OneWay:
		if len(c.Paths) == 0 {
			return e, false
		}
		p := c.Paths[r.IntN(len(c.Paths))]
		if e.On, e.To = p[0], p[1]; e.Does == OneWay && r.IntN(2) == 0 {
			e.On, e.To = e.To, e.On
		}
		return e, true
	case Server:
		if len(c.Nodes) > 0 && r.IntN(3) == 0 {
			e.To = c.Nodes[r.IntN(len(c.Nodes))]
		}
	}
	if len(of[e.Does]) == 0 {
		return e, false
	}
	e.On = of[e.Does][r.IntN(len(of[e.Does]))]
	return e, true
}

// pick draws one by weight.
func pick[T any](r *rand.Rand, of []T, weight func(T) int) T {
	sum := 0
	for _, o := range of {
		sum += weight(o)
	}
	n := r.IntN(sum)
	for _, o := range of {
		if n -= weight(o); n < 0 {
			return o
		}
	}
	panic("unreachable: the weights add up to their sum")
}

// String says the event to people.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8s %s %s", e.At, e.Does, e.On)
	if e.To != "" {
		fmt.Fprintf(&b, " to %s", e.To)
	}
	if e.How != "" {
		fmt.Fprintf(&b, ": %s", e.How)
	}
	if e.Much != 0 {
		fmt.Fprintf(&b, " %g", e.Much)
	}
	if e.For != 0 {
		fmt.Fprintf(&b, " for %s", e.For)
	}
	return b.String()
}

// Table writes the history as Go, for a test.
func (h History) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "history.History{Seed: %d, Nodes: %d, Coordinators: %d, Unrelayed: %t, ",
		h.Seed, h.Nodes, h.Coordinators, h.Unrelayed)
	if h.Readers {
		b.WriteString("Readers: true, ")
	}
	if h.Holds != 0 {
		fmt.Fprintf(&b, "Holds: %s, ", written(h.Holds))
	}
	fmt.Fprintf(&b, "Long: %s, Events: []history.Event{\n", written(h.Long))
	for _, e := range h.Events {
		fmt.Fprintf(&b, "\t{At: %s, ", written(e.At))
		if e.For != 0 {
			fmt.Fprintf(&b, "For: %s, ", written(e.For))
		}
		fmt.Fprintf(&b, "Does: history.%s, On: %q", names[e.Does], e.On)
		if e.To != "" {
			fmt.Fprintf(&b, ", To: %q", e.To)
		}
		if e.How != "" {
			fmt.Fprintf(&b, ", How: %q", e.How)
		}
		if e.Much != 0 {
			fmt.Fprintf(&b, ", Much: %g", e.Much)
		}
		b.WriteString("},\n")
	}
	b.WriteString("}}")
	return b.String()
}

// names are the Kinds as Go has them.
var names = map[Kind]string{
	Path: "Path", OneWay: "OneWay", Server: "Server", Restore: "Restore", Compact: "Compact", Machine: "Machine",
	Program: "Program", Clock: "Clock",
}

// written is a duration as Go source.
func written(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{time.Minute, "time.Minute"}, {time.Second, "time.Second"}, {time.Millisecond, "time.Millisecond"}} {
		if d != 0 && d%u.of == 0 {
			return fmt.Sprintf("%d * %s", d/u.of, u.name)
		}
	}
	return fmt.Sprint(int64(d))
}
