// Package history has the histories of the simulation. A history says what happens to a pool and its cloud, and when. The package
// draws histories from seeds, and prints them as tables for tests. It makes smaller ones of those that break a promise.
//
// What can happen to each part is here. Package world knows how it happens: it makes the events happen, and judges the result.
package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// History is one run of the world. All fields except Events can be compared with ==.
type History struct {
	// Seed is the seed of all random numbers that the world uses.
	Seed uint64
	// Nodes and Coordinators are how many of them the pool has. The world itself adds a second pool, which stays healthy.
	Nodes, Coordinators int
	// Unrelayed says that no hub of the pool lends its line. A neighbour's line would hide much of what coordinators are for.
	Unrelayed bool
	// Readers says that programs on each node read what changes in the cloud.
	Readers bool
	// Holds is for how long evictions from the pool are held when it is cut off as a whole; 0: not at all.
	Holds time.Duration
	// Long is how long things happen. After that nothing is harmed, and the world rests.
	Long   time.Duration
	Events []Event
}

// Event is one thing that happens.
type Event struct {
	// At is when the event begins, from the beginning of the history on. For is how long the event lasts; 0 means until the end
	// of the history. A Restore or a Compact is over at once, and its For is 0.
	At, For time.Duration
	Does    Kind
	// On is the part that is harmed. To is the other end of a path, or the node concerned; empty means all.
	On, To string
	// How is one of the Kind's ways. Much is the amount, in the unit of that way.
	How  string
	Much float64
}

// Kind is what can happen.
type Kind string

// The kinds, each with the values that How may have.
const (
	// Path harms the path between the machines On and To, both ways. How is one of these:
	//
	//	silent   nothing arrives
	//	refused  every segment is answered by a reset
	//	half     connections that are idle for a second are forgotten
	//	forgets  connections that are idle for Much seconds are forgotten
	//	small    segments of more than Much bytes are lost
	//	loss     the share Much of all segments is lost
	//	thin     the path carries Much bytes per second
	//	far      the round trip takes Much seconds
	Path Kind = "path"
	// OneWay harms only what On sends to To, in some of the ways of Path.
	OneWay Kind = "oneway"
	// Server harms the API server On. If To names a node, only requests for that node's Lease are harmed. How is one of these:
	//
	//	hang                     no request is carried out
	//	readonly                 no write is carried out
	//	etcd                     the storage does not answer, but the watch cache does
	//	slow                     each request takes Much times 5 ms more
	//	422                      each write is refused with this status
	//	401, 403, 429, 500, 503  each request is refused with this status; 429 and 503 ask for a retry after Much seconds
	Server Kind = "server"
	// Restore sets the cloud's storage back by Much seconds.
	Restore Kind = "restore"
	// Compact makes a server's storage forget its history.
	Compact Kind = "compact"
	// Machine harms the machine On: paused, suspended, dead (no power), or blank (dead, and back without its disk).
	Machine Kind = "machine"
	// Program ends one of a machine's programs, which is started again after For: killed or stopped.
	Program Kind = "program"
	// Clock sets a machine's wall clock wrong by Much seconds.
	Clock Kind = "clock"
)

// ways are the values of How for each Kind, each with its weight, and the amounts from which Much is drawn.
var ways = map[Kind][]way{
	Path: {
		{"silent", 4, nil}, {"refused", 1, nil}, {"half", 1, nil}, {"small", 1, amounts{576, 1200, 1400}},
		{"loss", 1, amounts{0.05, 0.3, 0.6}}, {"thin", 1, amounts{2000, 16000, 128000}}, {"far", 1, amounts{0.1, 0.6, 2, 8}},
		{"forgets", 1, amounts{5, 30}},
	},
	OneWay: {{"silent", 3, nil}, {"refused", 1, nil}, {"small", 1, amounts{576, 1200}}, {"loss", 1, amounts{0.3, 0.6}}},
	Server: {
		{"hang", 3, nil}, {"readonly", 3, nil}, {"etcd", 3, nil}, {"slow", 1, amounts{10, 100}}, {"401", 1, nil}, {"403", 1, nil},
		{"422", 1, nil}, {"429", 1, amounts{0, 1, 20}}, {"500", 1, nil}, {"503", 2, amounts{0, 5}},
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

// Cast lists the parts of a world that Events can be about.
type Cast struct {
	// Paths are pairs of machines. Servers are the API servers. Programs are given as MACHINE/PROGRAM.
	Paths             [][2]string
	Servers, Machines []string
	Programs, Nodes   []string
	// Pool is the name that stands for all nodes together.
	Pool string
}

// Weights say how often each Kind is drawn, compared with the others.
type Weights map[Kind]int

// The weights of exploration: Data is for what harms programs that read, All for everything, and the others for a theme each.
var (
	Data     = Weights{Path: 5, OneWay: 2, Server: 4, Compact: 2, Machine: 2, Program: 4}
	Links    = Weights{Path: 6, OneWay: 3, Machine: 1}
	Servers  = Weights{Server: 8, Compact: 1, Restore: 1, Path: 2, Program: 1}
	Machines = Weights{Machine: 4, Program: 4, Clock: 3, Path: 2}
	All      = Weights{Path: 4, OneWay: 2, Server: 4, Restore: 1, Compact: 1, Machine: 3, Program: 3, Clock: 2}
)

// soon is the longest time from an event to one that is drawn together with it.
const soon = 90 * time.Second

// Random draws a history of 5 to 10 minutes with 4 to 12 events. One in three histories has one more event, which harms the whole
// pool. Troubles come together: half of the events begin within 90 s after the event that was drawn before. Such an event is
// about the same machine if possible.
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

// holds are a day, which ends after every history, two times that end within some histories, and none. It is a constant.
var holds = [...]time.Duration{24 * time.Hour, 2 * time.Minute, 5 * time.Minute, 0}

// lasts draws how long an event lasts. Most faults are either a blip, or outlast every grace period.
func lasts(r *rand.Rand, k Kind) time.Duration {
	if k == Restore || k == Compact {
		return 0
	}
	seconds := []int{1, 3, 5, 12, 30, 60, 180}
	d := time.Duration(seconds[r.IntN(len(seconds))]) * time.Second
	return d + time.Duration(r.Int64N(int64(d/time.Second)))*time.Second/2
}

// cutOff draws an event that cuts off the whole pool, or takes its power. The event lasts 20 s to 5 minutes. In some histories it
// ends before Pods are evicted, in others after that.
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

// about returns the part of the cast that concerns one machine.
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

// pick draws one of several values by their weights.
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

// String returns the event as a line for people.
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

// Table returns the history as Go source, for a test.
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

// names are the Kinds' names in Go.
var names = map[Kind]string{
	Path: "Path", OneWay: "OneWay", Server: "Server", Restore: "Restore", Compact: "Compact", Machine: "Machine",
	Program: "Program", Clock: "Clock",
}

// written returns a duration as Go source.
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
