package wanday

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"yurtcoordinator/lab"
)

// Kind is what a node is.
type Kind string

// Kinds of nodes.
const (
	NoHub    Kind = "no hub"
	Alone    Kind = "hub, no coordinator"
	Follower Kind = "follower"
	Leader   Kind = "leader"
)

// Kinds are all, in the order of the report.
func Kinds() []Kind { return []Kind{NoHub, Alone, Follower, Leader} }

// Measured is what was seen in one cluster.
type Measured struct {
	Cluster Cluster
	// Took is for how long it was measured, Nodes how many nodes of each kind there were.
	Took  time.Duration
	Nodes map[Kind]int
	// Up and Down are what a node of a kind cost in the mean, in bytes of whole frames a day.
	Up, Down map[Kind]float64
	// Spent is what the mean node's hub says its connections carried, in bytes a day both ways, by the kind of traffic.
	Spent map[Kind]map[string]float64
	// Requests is how many requests the mean node sent in an hour, by program, verb and resource.
	Requests map[Kind]map[string]float64
	// Moved names nodes that were of another kind at the end.
	Moved []string
}

func newMeasured(cluster Cluster, kinds map[string]Kind, before, after reading, requests []lab.Request) Measured {
	m := Measured{
		Cluster: cluster, Took: after.at.Sub(before.at), Nodes: map[Kind]int{}, Up: map[Kind]float64{}, Down: map[Kind]float64{},
		Spent: map[Kind]map[string]float64{}, Requests: map[Kind]map[string]float64{},
	}
	for _, kind := range kinds {
		m.Nodes[kind]++
	}
	counts := countRequests(requests)
	aDay := float64(24*time.Hour) / float64(m.Took)
	for node, kind := range kinds {
		each := aDay / float64(m.Nodes[kind])
		carried := after.cables[node].Sub(before.cables[node])
		m.Up[kind] += float64(carried.Up) * each
		m.Down[kind] += float64(carried.Down) * each
		add(m.Spent, kind, since(before.spent[node], after.spent[node]), each)
		add(m.Requests, kind, counts[node], each/24)
	}
	return m
}

func add[N int | uint64](to map[Kind]map[string]float64, kind Kind, counts map[string]N, each float64) {
	if to[kind] == nil {
		to[kind] = map[string]float64{}
	}
	for what, n := range counts {
		to[kind][what] += float64(n) * each
	}
}

// Cost is what a node of a kind costs, bytes a day both ways.
func (m Measured) Cost(k Kind) float64 { return m.Up[k] + m.Down[k] }

// Ratio is the cost of a node of a kind, relative to a node without a hub.
func (m Measured) Ratio(k Kind) float64 { return m.Cost(k) / m.Cost(NoHub) }

// PoolRatio is the cost of a pool of n nodes, one of which leads, relative to n nodes without hubs.
func (m Measured) PoolRatio(n int) float64 {
	return (m.Cost(Leader) + float64(n-1)*m.Cost(Follower)) / (float64(n) * m.Cost(NoHub))
}

// pool is how many nodes the pool with a coordinator has.
func (m Measured) pool() int { return m.Nodes[Follower] + m.Nodes[Leader] }

// The budgets: of a node alone relative to one without a hub, and of a pool of ten nodes relative to ten without hubs.
const (
	nodeBudget, poolBudget = 1.0, 0.8
	poolOf                 = 10
)

// Report is what Run has measured.
type Report struct{ Measured []Measured }

// Table prints the report for people.
func (r Report) Table(out io.Writer) error {
	for _, m := range r.Measured {
		if err := m.table(out); err != nil {
			return err
		}
	}
	return nil
}

func (m Measured) table(out io.Writer) error {
	fmt.Fprintf(out, "\nA cluster that is %s, measured for %v; MB (10^6 bytes) a day on a node's WAN cable, whole frames:\n\n",
		m.Cluster, m.Took.Round(time.Second))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tNODES\tUP\tDOWN\tBOTH\tRATIO\t")
	for _, k := range Kinds() {
		if m.Nodes[k] > 0 {
			fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f×\t\n", k, m.Nodes[k], m.Up[k]/1e6, m.Down[k]/1e6, m.Cost(k)/1e6,
				m.Ratio(k))
		}
	}
	for _, n := range m.pools() {
		cost := m.PoolRatio(n) * float64(n) * m.Cost(NoHub)
		fmt.Fprintf(t, "pool of %d\t\t\t\t%.2f\t%.2f×\t\n", n, cost/1e6, m.PoolRatio(n))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\nWhat hubs spent it on, by their own counters, MB a day both ways; "+
		"frames: headers of TCP and below, empty packets:\n\n")
	if err := m.columns(out, m.spentTable(), "%.3f"); err != nil {
		return err
	}
	fmt.Fprint(out, "\nRequests that the cloud got from a node in an hour:\n\n")
	if err := m.columns(out, m.Requests, "%.1f"); err != nil {
		return err
	}
	for _, moved := range m.Moved {
		fmt.Fprintf(out, "It changed while it was measured: %s\n", moved)
	}
	_, err := fmt.Fprintf(out, "\nBudget: a node behind a hub ≤ %g× one without: %s. A pool of %d ≤ %g×: %s.\n", nodeBudget,
		verdict(m.Ratio(Alone), nodeBudget), poolOf, poolBudget, verdict(m.PoolRatio(poolOf), poolBudget))
	return err
}

// pools are the sizes of pools to show: the one that was measured, and the one of the budget.
func (m Measured) pools() []int {
	if m.pool() == poolOf {
		return []int{poolOf}
	}
	return []int{m.pool(), poolOf}
}

func verdict(ratio, budget float64) string {
	if ratio > budget {
		return fmt.Sprintf("OVER BUDGET, %.2f×", ratio)
	}
	return fmt.Sprintf("ok, %.2f×", ratio)
}

// spentTable is Spent with what the cable carried beyond it.
func (m Measured) spentTable() map[Kind]map[string]float64 {
	all := map[Kind]map[string]float64{}
	for k, spent := range m.Spent {
		if k == NoHub {
			continue
		}
		row := map[string]float64{}
		sum := 0.0
		for what, n := range spent {
			sum += n
			if what == "" {
				what = "payload"
			}
			row[what] = n / 1e6
		}
		row["frames"] = (m.Cost(k) - sum) / 1e6
		all[k] = row
	}
	return all
}

// columns prints one row for each name in any of the columns, which are kinds of nodes.
func (m Measured) columns(out io.Writer, of map[Kind]map[string]float64, format string) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	names := map[string]bool{}
	var kinds []Kind
	fmt.Fprint(t, "WHAT\t")
	for _, k := range Kinds() {
		if len(of[k]) == 0 {
			continue
		}
		kinds = append(kinds, k)
		fmt.Fprintf(t, "%s\t", strings.ToUpper(string(k)))
		for name := range of[k] {
			names[name] = true
		}
	}
	fmt.Fprintln(t)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(t, "%s\t", name)
		for _, k := range kinds {
			fmt.Fprintf(t, format+"\t", of[k][name])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// Figures returns the numbers by key and unit.
func (r Report) Figures() map[string]float64 {
	out := map[string]float64{}
	round := func(v float64) float64 { return math.Round(v*1000) / 1000 }
	name := strings.NewReplacer(" ", "_", ",", "")
	for _, m := range r.Measured {
		key := func(parts ...string) string {
			return string(m.Cluster) + "_" + name.Replace(strings.Join(parts, "_"))
		}
		out[key("seconds")] = math.Round(m.Took.Seconds())
		for _, k := range Kinds() {
			if m.Nodes[k] == 0 {
				continue
			}
			out[key(string(k), "up_mb_per_day")] = round(m.Up[k] / 1e6)
			out[key(string(k), "down_mb_per_day")] = round(m.Down[k] / 1e6)
			out[key(string(k), "ratio")] = round(m.Ratio(k))
		}
		for k, row := range m.spentTable() {
			for what, n := range row {
				out[key(string(k), what, "mb_per_day")] = round(n)
			}
		}
		for _, n := range m.pools() {
			out[key(fmt.Sprintf("pool_of_%d_ratio", n))] = round(m.PoolRatio(n))
		}
		out[key("nodes_in_pool")] = float64(m.pool())
	}
	return out
}
