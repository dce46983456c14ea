package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result, with the budgets.
type Report struct {
	Rows []Row
	// Profiles of the hub, by file name, if any were taken.
	Profiles map[string][]byte
	// Measured is the input of the rows.
	Measured Measured
}

// Row is one figure.
type Row struct {
	// Key names the figure in Figures, What describes it to people. Unit is the unit of Reference and Ours.
	Key, What, Unit string
	// Ours is the figure through the hub, or of our program. Reference is the figure without it; 0 means none.
	Ours, Reference float64
	// Against is the way of Reference. Ways has all ways.
	Against Way
	Ways    map[Way]float64
	// Floor is the figure of the plain proxy, and ToFloor is Ours to Floor, as Ratio is; 0 means none.
	Floor, ToFloor float64
	// Ratio is Ours to Reference, as the median of the rounds' ratios; 0 means none.
	Ratio float64
	// Added is the median difference of Ours and Reference, for rows where that matters.
	Added  float64
	Budget Budget
}

// Budget bounds one number of a row. The zero Budget bounds nothing.
type Budget struct {
	Of    Quantity
	Limit float64
}

// Quantity is the number of a row that a Budget bounds.
type Quantity uint8

// Quantities.
const (
	Nothing Quantity = iota
	RatioAtMost
	RatioAtLeast
	OursAtMost
	AddedAtMost
	FloorAtMost
	FloorAtLeast
)

// Budgets of what a plain proxy does, too, as ratios to its figures: docs/adr/0051-the-floor.md has the reasons.
const (
	// getLatency is of a GET's p50, getRate of GETs per second, getCost of the processor time for a GET.
	getLatency, getRate, getCost = 1.1, 0.95, 1.0
	// followerSteady and followerBurst are of the processor time for an event: at steadyPerSecond, and as fast as possible.
	followerSteady, followerBurst = 1.25, 1.25
	leaderSteady, leaderBurst     = 2.0, 2.0
)

// Over reports whether the row is over its budget.
func (r Row) Over() bool {
	switch r.Budget.Of {
	case RatioAtMost:
		return r.Ratio > r.Budget.Limit
	case RatioAtLeast:
		return r.Ratio < r.Budget.Limit
	case OursAtMost:
		return r.Ours > r.Budget.Limit
	case AddedAtMost:
		return r.Added > r.Budget.Limit
	case FloorAtMost:
		return r.ToFloor > r.Budget.Limit
	case FloorAtLeast:
		return r.ToFloor < r.Budget.Limit
	default:
		return false
	}
}

func (r Row) budget() string {
	switch r.Budget.Of {
	case RatioAtMost:
		return fmt.Sprintf("≤ %g×", r.Budget.Limit)
	case RatioAtLeast:
		return fmt.Sprintf("≥ %g×", r.Budget.Limit)
	case OursAtMost:
		return fmt.Sprintf("≤ %g %s", r.Budget.Limit, r.Unit)
	case AddedAtMost:
		return fmt.Sprintf("≤ +%g %s", r.Budget.Limit, r.Unit)
	case FloorAtMost:
		return fmt.Sprintf("≤ %g× proxy", r.Budget.Limit)
	case FloorAtLeast:
		return fmt.Sprintf("≥ %g× proxy", r.Budget.Limit)
	default:
		return ""
	}
}

// newReport computes the report. The budgets are DESIGN's; docs/benchmarks.md lists them with others' figures.
func newReport(m Measured, coordinatorStarts []time.Duration) Report {
	r := Report{Profiles: m.Profiles, Measured: m}
	r.Measured.Profiles = nil
	starts := make([]float64, len(coordinatorStarts))
	for i, s := range coordinatorStarts {
		starts[i] = s.Seconds()
	}
	r.Rows = slices.Concat(
		getRows(m, JSON, "JSON"), getRows(m, Protobuf, "Protobuf"),
		[]Row{
			compare(m.Heartbeat, lower, Round.p50, Row{Key: "heartbeat_p50", What: "heartbeat p50", Unit: "ms"}),
			compare(m.Heartbeat, lower, Round.p99, Row{Key: "heartbeat_p99", What: "heartbeat p99", Unit: "ms"}),
		},
		costRows(m.GetMany),
		memoryRows("hub_idle", "hub", "idle", m.HubIdle, 12),
		memoryRows("hub_loaded", "hub", "after the load", m.HubLoaded, 0),
		sharedRows(m.Shared),
		memoryRows("coordinator_idle", "coordinator", "idle", m.CoordinatorIdle, 45),
		[]Row{{
			Key: "coordinator_start", What: "coordinator, start → ready", Unit: "s", Ours: median(starts),
			Budget: Budget{OursAtMost, 1},
		}})
	return r
}

func getRows(m Measured, e Encoding, what string) []Row {
	key := "get_" + string(e)
	return []Row{
		compare(m.GetOne[e], lower, Round.p50, Row{
			Key: key + "_p50", What: "GET p50, 1 connection, " + what, Unit: "ms", Budget: Budget{FloorAtMost, getLatency},
		}),
		compare(m.GetOne[e], lower, Round.p99, Row{
			Key: key + "_p99", What: "GET p99, 1 connection, " + what, Unit: "ms",
		}),
		compare(m.GetMany[e], higher, Round.perSecond, Row{
			Key: key + "_rate", What: fmt.Sprintf("GETs, %d connections, %s", manyConnections, what), Unit: "/s",
			Budget: Budget{FloorAtLeast, getRate},
		}),
	}
}

// costRows return how much processor time each program takes for GETs on many connections, JSON and protobuf together.
func costRows(trials map[Encoding]Trial) []Row {
	all := Trial{}
	for _, t := range trials {
		for w, rounds := range t {
			all[w] = append(all[w], rounds...)
		}
	}
	best := HTTP2
	if median(figures(all[HTTP1], Round.perSecond)) > median(figures(all[HTTP2], Round.perSecond)) {
		best = HTTP1
	}
	var rows []Row
	for _, who := range []struct {
		key, what string
		took      func(Round) time.Duration
	}{
		{"hub", "hub", func(r Round) time.Duration { return r.Hub }},
		{"server", "API server", func(r Round) time.Duration { return r.Server }},
		{"client", "client", func(r Round) time.Duration { return r.Client }},
	} {
		row := Row{
			Key: who.key + "_cpu_per_1000_gets", What: who.what + " CPU per 1000 GETs", Unit: "s",
			Ours: cost(all[Hub], who.took), Floor: cost(all[Proxy], who.took),
		}
		if who.key == "hub" {
			row.Floor = cost(all[Proxy], func(r Round) time.Duration { return r.Proxy })
			row.Budget = Budget{FloorAtMost, getCost}
		} else {
			row.Reference, row.Against = cost(all[best], who.took), best
		}
		row = toFloor(row)
		if row.Reference > 0 {
			row.Ratio = row.Ours / row.Reference
		}
		rows = append(rows, row)
	}
	return rows
}

// cost returns the processor time per 1000 requests, in seconds.
func cost(rounds []Round, took func(Round) time.Duration) float64 {
	var sum time.Duration
	requests := 0
	for _, r := range rounds {
		sum += took(r)
		requests += r.Requests
	}
	if requests == 0 {
		return 0
	}
	return sum.Seconds() * 1000 / float64(requests)
}

// memoryRows returns the rows of a program's memory. The budget of anonymous memory is in MB; 0 means none. RSS has no budget,
// because the system decides whether to keep its pages of files.
func memoryRows(key, program, when string, m Memory, most float64) []Row {
	row := func(name, what string, size int64, limit float64) Row {
		r := Row{Key: key + "_" + name, What: program + " " + what + ", " + when, Unit: "MB", Ours: float64(size) / 1e6}
		if limit > 0 {
			r.Budget = Budget{OursAtMost, limit}
		}
		return r
	}
	return []Row{row("anonymous", "anonymous memory", m.Anonymous, most), row("rss", "RSS", m.RSS, 0)}
}

// better returns the harder one of two references.
type better func(a, b float64) bool

func lower(a, b float64) bool  { return a < b }
func higher(a, b float64) bool { return a > b }

// toFloor fills in the ratio of two figures that were measured once.
func toFloor(r Row) Row {
	if r.Floor > 0 {
		r.ToFloor = r.Ours / r.Floor
	}
	return r
}

// compare fills a row with the hub's median of a figure, the plain proxy's, and that of the best direct way.
func compare(t Trial, by better, figure func(Round) float64, r Row) Row {
	ours := figures(t[Hub], figure)
	r.Ours, r.Ways = median(ours), map[Way]float64{}
	var reference []float64
	for _, w := range []Way{HTTP2, HTTP1} {
		direct := figures(t[w], figure)
		if len(direct) == 0 {
			continue
		}
		r.Ways[w] = median(direct)
		if reference == nil || by(r.Ways[w], r.Reference) {
			reference, r.Reference, r.Against = direct, r.Ways[w], w
		}
	}
	plain := figures(t[Proxy], figure)
	r.Floor, r.ToFloor, r.Ratio = median(plain), ratio(ours, plain), ratio(ours, reference)
	return r
}

// ratio returns the median of the rounds' ratios.
func ratio(ours, reference []float64) float64 {
	var ratios []float64
	for i := range min(len(ours), len(reference)) {
		if reference[i] > 0 {
			ratios = append(ratios, ours[i]/reference[i])
		}
	}
	return median(ratios)
}

func figures(rounds []Round, figure func(Round) float64) []float64 {
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = figure(r)
	}
	return out
}

// median returns 0 for nothing.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Table prints the report for people.
func (r Report) Table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tDIRECT\tPROXY\tOURS\tRATIO\tTO PROXY\tBUDGET\t")
	over := 0
	for _, row := range r.Rows {
		direct, proxy, ratio, toProxy, mark := "-", "-", "-", "-", ""
		if row.Reference != 0 {
			direct = fmt.Sprintf("%s %s (%s)", short(row.Reference), row.Unit, row.Against)
		}
		if row.Floor != 0 {
			proxy = short(row.Floor) + " " + row.Unit
		}
		if row.ToFloor != 0 {
			toProxy = fmt.Sprintf("%.2f×", row.ToFloor)
		}
		switch {
		case row.Added != 0:
			ratio = fmt.Sprintf("%+.2f %s", row.Added, row.Unit)
		case row.Ratio != 0:
			ratio = fmt.Sprintf("%.2f×", row.Ratio)
		}
		if row.Over() {
			over++
			mark = "OVER BUDGET"
		} else if row.Budget.Of != Nothing {
			mark = "ok"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s %s\t%s\t%s\t%s\t%s\n",
			row.What, direct, proxy, short(row.Ours), row.Unit, ratio, toProxy, row.budget(), mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out,
		"\n%d over budget. Medians of rounds in turns; ratios are medians of each round's ratio.\n", over)
	return err
}

// short formats a number with three significant digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Figures returns the rows' numbers by their key and unit.
func (r Report) Figures() map[string]float64 {
	out := map[string]float64{"over_budget": 0}
	for _, row := range r.Rows {
		unit := map[string]string{"/s": "per_s", "MB": "mb", "ms/s": "ms_per_s"}[row.Unit]
		if unit == "" {
			unit = row.Unit
		}
		add := func(key string, v float64) { out[key] = math.Round(v*1000) / 1000 }
		if row.Reference == 0 {
			add(row.Key+"_"+unit, row.Ours)
		} else {
			add(row.Key+"_hub_"+unit, row.Ours)
			add(row.Key+"_direct_"+unit, row.Reference)
		}
		for w, v := range row.Ways {
			name := strings.NewReplacer("HTTP/2", "http2", "HTTP/1.1", "http1").Replace(string(w))
			add(row.Key+"_"+name+"_"+unit, v)
		}
		if row.Ratio != 0 {
			add(row.Key+"_ratio", row.Ratio)
		}
		if row.Added != 0 {
			add(row.Key+"_added_"+unit, row.Added)
		}
		if row.Floor != 0 {
			add(row.Key+"_proxy_"+unit, row.Floor)
		}
		if row.ToFloor != 0 {
			add(row.Key+"_to_proxy_ratio", row.ToFloor)
		}
		if row.Over() {
			out["over_budget"]++
		}
	}
	return out
}
