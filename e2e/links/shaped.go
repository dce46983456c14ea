package links

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/line"
	"yurtcoordinator/internal/lab/probe"
	"yurtcoordinator/internal/lab/wire"
)

var shapedScenarios = []kit.Scenario{
	{
		Name: "shaped-link", Tier: kit.Field, Run: shapedLink,
		Lab: lab.Config{Pools: 1, Nodes: 3, NoKubelet: true, NoProxy: true, NoCoordinator: true, Timing: lab.Quick},
		Doc: "The lab's own links with a rate, a delay, jitter and losses (`yurtlab link shape`): round trip and rate are " +
			"within 5 % over 10 s, alone and shared, and the losses are exactly the seed's. Cuts, counters and power cuts " +
			"work as on any link.",
	},
}

// shapeWithin is how far a measured round trip or rate may differ from the shape.
const shapeWithin = 0.05

// measured is how long each measurement takes.
const measured = 10 * time.Second

// lanIP returns the LAN address of a node of the first pool; see docs/lab.md.
func lanIP(node int) string { return fmt.Sprintf("10.78.1.%d", node) }

const cloudIP = "10.77.0.1"

func shapedLink(t *kit.T) {
	roundTripAndRate(t)
	sharedRate(t)
	lossesAreTheSeeds(t)
	cutsOnALine(t)
	t.Must(t.Lab.Unshape(t.Ctx, lab.LAN, "pool/p1"))
	plain := echoes(t, "p1-n2", lanIP(1), "p1-n1", 5)
	if len(plain.RoundTrips) != 5 || median(plain.RoundTrips) > 20*time.Millisecond {
		t.Fail("without a shape: %v", plain.RoundTrips)
	}
}

// roundTripAndRate measures the delay of one link and, meanwhile, the rate of another, each way.
func roundTripAndRate(t *kit.T) {
	far := line.Shape{Delay: 100 * time.Millisecond, Jitter: 20 * time.Millisecond}
	t.Shape(lab.WAN, "p1-n1", far, 1, false)
	slow := line.Shape{Rate: 2_000_000, Queue: 64 << 10}
	t.Shape(lab.LAN, "p1-n3", slow, 1, false)
	t.Say("for %v: echoes across the WAN of p1-n1 (%s), and twice the rate each way across the LAN of p1-n3 (%s)",
		measured, far, slow)
	var up, down probe.Heard
	var trips probe.Sent
	together(t,
		func(t *kit.T) { trips = echoes(t, "p1-n1", cloudIP, "cloud", int(measured/(100*time.Millisecond))) },
		func(t *kit.T) { up = flood(t, 2*slow.Rate, lanIP(1), "p1-n1", "p1-n3")["p1-n3"] },
		func(t *kit.T) { down = flood(t, 2*slow.Rate, lanIP(3), "p1-n3", "p1-n2")["p1-n2"] },
	)
	near(t, "round_trip_ms", median(trips.RoundTrips).Seconds()*1000, 2*far.Delay.Seconds()*1000)
	least, most := slices.Min(trips.RoundTrips), slices.Max(trips.RoundTrips)
	if least < 2*(far.Delay-far.Jitter) {
		t.Fail("a round trip took %v: less than the delay without the jitter, twice", least)
	}
	t.Figure("round_trip_least_ms", least.Seconds()*1000)
	t.Figure("round_trip_most_ms", most.Seconds()*1000)
	near(t, "rate_up_kbit", up.Rate()/1000, float64(slow.Rate)/1000)
	near(t, "rate_down_kbit", down.Rate()/1000, float64(slow.Rate)/1000)
}

// sharedRate measures the rates of two nodes that share an uplink, and compares them with the traffic counters.
func sharedRate(t *kit.T) {
	slow := line.Shape{Rate: 1_000_000, Queue: 64 << 10}
	t.Shape(lab.WAN, "pool/p1", slow, 1, true)
	before, err := t.Lab.Traffic(t.Ctx, false)
	t.Must(err)
	t.Say("for %v: twice the rate from each of two nodes across an uplink that the pool shares (%s)", measured, slow)
	heard := flood(t, 2*slow.Rate, cloudIP, "cloud", "p1-n2", "p1-n3")
	after, err := t.Lab.Traffic(t.Ctx, false)
	t.Must(err)
	near(t, "shared_rate_kbit", heard[""].Rate()/1000, float64(slow.Rate)/1000)
	for _, node := range []string{"p1-n2", "p1-n3"} {
		got := float64(len(heard[node].Numbers)) / float64(len(heard[""].Numbers))
		t.Figure("share_of_"+node, got)
		if got < 0.1 {
			t.Fail("%s got %.2f of the uplink", node, got)
		}
		// The machine's end counts what it sends, even what finds no room behind it.
		sent := after[node].Sub(before[node]).Up
		if want := 2 * float64(slow.Rate) / 8 * measured.Seconds(); math.Abs(float64(sent)-want) > want*shapeWithin {
			t.Fail("%s sent %d bytes by its counter, and by what it was told to %.0f", node, sent, want)
		}
	}
	t.Must(t.Lab.Unshape(t.Ctx, lab.WAN, "pool/p1"))
}

// lossesAreTheSeeds sends datagrams in both directions at once over a link that loses some, and compares what arrives
// with the model.
func lossesAreTheSeeds(t *kit.T) {
	const count, seed = 3000, 20260
	shape := line.Shape{Loss: 0.05, Delay: 10 * time.Millisecond}
	t.Shape(lab.LAN, "p1-n2", shape, seed, false)
	t.Say("%d datagrams each way across the LAN of p1-n2 (%s; seed %d)", count, shape, seed)
	var up, down probe.Heard
	send := probe.Order{Count: count, Size: 100, Every: time.Millisecond}
	together(t,
		func(t *kit.T) { up = heardFrom(t, send, lanIP(1), "p1-n1", "p1-n2")["p1-n2"] },
		func(t *kit.T) { down = heardFrom(t, send, lanIP(2), "p1-n2", "p1-n3")["p1-n3"] },
	)
	on := lineOf(t, lab.LAN, "p1-n2")
	if on.Missed != 0 {
		t.Fail("%d frames were missed, which no seed has lost", on.Missed)
	}
	for way, got := range map[string]struct {
		counts line.Counts
		heard  probe.Heard
	}{wire.Up: {on.Up, up}, wire.Down: {on.Down, down}} {
		model := line.NewWay(line.Shape{Loss: shape.Loss}, seed, on.Name+" "+way)
		fates := make([]bool, got.counts.Frames)
		for i := range fates {
			_, fate := model.Send(0, 1)
			fates[i] = fate == line.Delivered
		}
		if want := model.Counts().Lost; got.counts.Lost != want || got.counts.Overflowed != 0 {
			t.Fail("%s: of %d frames, %d were lost; the seed loses %d", way, got.counts.Frames, got.counts.Lost, want)
		}
		arrived := make([]bool, count)
		for _, n := range got.heard.Numbers {
			arrived[n] = true
		}
		others := len(fates) - count
		if others < 0 || others > 20 || !within(arrived, fates) {
			t.Fail("%s: %d frames came to the line, and which of %d datagrams arrived is not the seed's doing", way,
				len(fates), count)
		}
		if !slices.IsSorted(got.heard.Numbers) {
			t.Fail("%s: datagrams have overtaken each other", way)
		}
		t.Say("%s: of %d datagrams and %d other frames the seed's %d were lost", way, count, others, got.counts.Lost)
	}
	t.Figure("frames_lost", float64(on.Up.Lost+on.Down.Lost))
}

// within reports whether part is all with some elements left out, in order: other frames come between ours, such as
// those that ask for addresses.
func within(part, all []bool) bool {
	for _, v := range part {
		i := slices.Index(all, v)
		if i < 0 {
			return false
		}
		all = all[i+1:]
	}
	return true
}

// cutsOnALine cuts and heals a shaped link, and cuts the power of its node.
func cutsOnALine(t *kit.T) {
	shape := line.Shape{Delay: 50 * time.Millisecond}
	t.Shape(lab.LAN, "p1-n2", shape, 1, false)
	trips := func(when string) {
		t.Say("%s", when)
		s := echoes(t, "p1-n2", lanIP(1), "p1-n1", 10)
		if len(s.RoundTrips) != 10 || slices.Min(s.RoundTrips) < 2*shape.Delay {
			t.Fail("%s: round trips %v", when, s.RoundTrips)
		}
	}
	trips("a whole link with a delay")
	for fault, want := range map[wire.Fault]struct{ up, down int }{
		wire.Drop: {}, wire.OneWay: {down: 10}, wire.Reject: {},
	} {
		t.Must(t.Lab.Cut(t.Ctx, lab.LAN, "p1-n2", fault))
		var up, down probe.Heard
		var sent probe.Sent
		few := probe.Order{Count: 10, Size: 100, Every: 10 * time.Millisecond}
		together(t,
			func(t *kit.T) {
				stop := listen(t, "p1-n1", lanIP(1))
				sent = send(t, "p1-n2", lanIP(1), few)
				up = stop()
			},
			func(t *kit.T) { down = heardFrom(t, few, lanIP(2), "p1-n2", "p1-n3")["p1-n3"] },
		)
		if len(up.Numbers) != want.up || len(down.Numbers) != want.down || (sent.Refused > 0) != (fault == wire.Reject) {
			t.Fail("cut with mode %s: %d came from the node, %d to it, %d were refused", fault, len(up.Numbers),
				len(down.Numbers), sent.Refused)
		}
		t.Must(t.Lab.Heal(t.Ctx, lab.LAN, "p1-n2"))
	}
	trips("healed")
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, "p1-n2", lab.All))
	trips("after a power cut")
}

// lineOf returns the line of a node's link.
func lineOf(t *kit.T, n lab.Network, node string) lab.LineStatus {
	s, err := t.Lab.Status(t.Ctx)
	t.Must(err)
	for _, at := range s.Nodes {
		on := at.LANLine
		if n == lab.WAN {
			on = at.WANLine
		}
		if at.Name == node && on != nil {
			return *on
		}
	}
	t.Fail("the %s of %s is on no line", n, node)
	return lab.LineStatus{}
}

// near compares a measured value with the wanted one.
func near(t *kit.T, name string, got, want float64) {
	t.Figure(name, got)
	if math.Abs(got-want) > want*shapeWithin {
		t.Fail("%s is %.1f, want %.1f within %.0f %%", name, got, want, 100*shapeWithin)
	}
}

// together runs parts in parallel, and fails if one of them does.
func together(t *kit.T, parts ...func(*kit.T)) {
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() { errs[i] = t.Protect(part) })
	}
	all.Wait()
	t.Must(errors.Join(errs...))
}

// median returns the round trip in the middle, which a machine that stands still for a moment does not move; zero of none.
// The jitter is even to both sides, so that it is the delay of both ways.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// echoes sends datagrams from a node to an address of a machine, ten a second, and collects their echoes.
func echoes(t *kit.T, from, address, machine string, count int) probe.Sent {
	stop := listen(t, machine, address)
	defer stop()
	return send(t, from, address, probe.Order{
		Count: count, Size: 100, Every: 100 * time.Millisecond, Wait: 2 * time.Second,
	})
}

// flood sends from each of these nodes at a rate, and returns what the machine heard: see heardFrom.
func flood(t *kit.T, rate uint64, address, machine string, from ...string) map[string]probe.Heard {
	const size = 1000
	every := time.Duration((size+probe.Overhead)*8) * time.Second / time.Duration(rate)
	return heardFrom(t, probe.Order{Count: int(measured / every), Size: size, Every: every}, address, machine, from...)
}

// heardFrom makes nodes send to an address of a machine, and returns what it heard: from each, and under "" from all.
func heardFrom(t *kit.T, o probe.Order, address, machine string, from ...string) map[string]probe.Heard {
	stop := listen(t, machine, address)
	sends := make([]func(*kit.T), len(from))
	for i, node := range from {
		each := o
		each.First = i * o.Count
		sends[i] = func(t *kit.T) { send(t, node, address, each) }
	}
	together(t, sends...)
	t.Pause(time.Second, "what is on its way arrives")
	heard := stop()
	out := map[string]probe.Heard{"": heard}
	for _, n := range heard.Numbers {
		node := from[n/o.Count]
		h := out[node]
		h.Numbers = append(h.Numbers, n%o.Count)
		out[node] = h
	}
	if len(from) == 1 {
		out[from[0]] = heard
	}
	return out
}

// probePort is a port on which no program of a lab listens.
const probePort = 9999

// listen makes a machine receive datagrams until the returned function is called, which returns what arrived.
func listen(t *kit.T, machine, address string) func() probe.Heard {
	cmd, in, out := t.StartInside(machine, probe.Command, probe.Order{Listen: at(address)})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fail("%s does not listen: %w", machine, errors.Join(err, in.Close(), cmd.Wait()))
	}
	return sync.OnceValue(func() probe.Heard {
		var h probe.Heard
		err := in.Close()
		t.Must(errors.Join(err, json.NewDecoder(out).Decode(&h), cmd.Wait()))
		return h
	})
}

// send makes a machine send what o says.
func send(t *kit.T, machine, address string, o probe.Order) probe.Sent {
	o.To = at(address)
	cmd, in, out := t.StartInside(machine, probe.Command, o)
	var s probe.Sent
	t.Must(errors.Join(json.NewDecoder(out).Decode(&s), in.Close(), cmd.Wait()))
	return s
}

func at(address string) string { return fmt.Sprintf("%s:%d", address, probePort) }
