package cloudscale

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"yurtcoordinator/lab/bench"
)

// Report is what was measured.
type Report struct {
	Config Config
	// Arrival is the start of the controller in a cluster of Nodes and NodePools, until it has judged and counted all.
	Arrival Work
	// Fill lasts from the first YurtCoordinator's creation until all are Ready. Made is the time until all were created.
	// FillAPI is kube-apiserver's processor time during Fill.
	Fill    Work
	Made    time.Duration
	FillAPI time.Duration
	Steady  Steady
	Lags    []Lag
	// Failed counts the heartbeats and reports of the whole run that failed.
	Failed    int64
	API, Etcd bench.Usage
}

// Work is what the controller needed for one phase.
type Work struct {
	Ready    time.Duration // until its cache was filled
	Took     time.Duration
	Requests requests
	Usage    bench.Usage
	Errors   float64
}

// Steady is what the controller uses while nothing changes.
type Steady struct {
	Elapsed time.Duration
	// Beats counts the answered heartbeats, and Delegated those of them that came through another node. Reported counts the
	// reports of Nodes' statuses.
	Beats, Delegated, Reported int64
	// PUT is the time that the API server took to answer a heartbeat.
	PUT            Spread
	CPU, API, Etcd time.Duration
	// Allocated counts bytes, Collections those of garbage. Heap is the heap in use.
	Allocated   int64
	Collections int
	Heap        int64
	Controller  bench.Usage
	Requests    requests
}

func (s Steady) perSecond() float64 { return float64(s.Beats) / s.Elapsed.Seconds() }

// Lag is how late the controller reports that a node's heartbeats now come another way (through another node, or direct again).
// It is counted from the API server's answer to the first such heartbeat.
type Lag struct {
	Nodes, Rounds                               int
	Taint, Condition, Listed, Untaint, Restored Spread
	Unlisted                                    Spread
	// Requests are the requests of all rounds together.
	Requests requests
}

// writes returns the writes per node and turn of its link. It leaves out writes to rights, which links do not cause.
func (l Lag) writes() float64 {
	writes := l.Requests.writes() - l.Requests["patch roles"] - l.Requests["patch rolebindings"]
	return float64(writes) / float64(2*l.Nodes*l.Rounds)
}

// Spread is the distribution of some durations.
type Spread struct{ P50, P99, Max time.Duration }

// spreadOf sorts all and picks from it. For nothing it returns the zero Spread.
func spreadOf(all []time.Duration) Spread {
	if len(all) == 0 {
		return Spread{}
	}
	slices.Sort(all)
	return Spread{all[(len(all)-1)/2], all[(len(all)-1)*99/100], all[len(all)-1]}
}

// String returns the spread in seconds or milliseconds.
func (s Spread) String() string {
	return fmt.Sprintf("%s / %s / %s", short(s.P50), short(s.P99), short(s.Max))
}

func short(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// Row is one figure.
type Row struct {
	// Key names the figure in Figures, with its unit. What is for people.
	Key, What, Unit string
	Value           float64
	// Budget is the most that the figure should be; 0 means no budget.
	Budget float64
	// Text is shown instead of Value.
	Text string
}

// Over reports whether it is over its budget.
func (r Row) Over() bool { return r.Budget > 0 && r.Value > r.Budget }

// lagBudget comes from DESIGN: first annotated Lease to taint, first clean Lease to untaint.
const lagBudget = 1

// Rows returns all figures.
func (r Report) Rows() []Row {
	pools := float64(r.Config.Pools)
	rows := workRows("arrival", fmt.Sprintf("start in a cluster of %d nodes", r.Config.Pools*r.Config.Nodes), r.Arrival)
	rows = append(rows, seconds("arrival_ready", "… until its cache is filled", r.Arrival.Ready))
	rows = append(rows, workRows("fill", fmt.Sprintf("%d YurtCoordinators made → all Ready", r.Config.Pools), r.Fill)...)
	rows = append(rows,
		seconds("fill_made", "… of it, making them", r.Made),
		Row{Key: "fill_requests_per_pool", What: "… requests for each", Value: float64(r.Fill.Requests.total()) / pools},
		Row{Key: "fill_writes_per_pool", What: "… writes for each, without Events",
			Value: float64(r.Fill.Requests.writes()) / pools},
		seconds("fill_api_cpu", "… CPU of kube-apiserver", r.FillAPI))
	rows = append(rows, r.Steady.rows()...)
	for _, l := range r.Lags {
		rows = append(rows, l.rows()...)
	}
	return append(rows,
		count("failed", "heartbeats and reports that failed, in all", int(r.Failed)),
		megabytes("api_peak", "kube-apiserver, RSS at most", r.API.Peak),
		megabytes("etcd_peak", "etcd, RSS at most", r.Etcd.Peak))
}

func workRows(key, what string, w Work) []Row {
	return []Row{
		seconds(key, what, w.Took), seconds(key+"_cpu", "… CPU", w.Usage.CPU),
		megabytes(key+"_peak", "… RSS at most so far", w.Usage.Peak),
		megabytes(key+"_rss", "… RSS after", w.Usage.Memory.RSS),
		count(key+"_requests", "… requests", w.Requests.total()),
		count(key+"_errors", "… reconciles that failed", int(w.Errors)),
	}
}

func (s Steady) rows() []Row {
	per := func(d time.Duration) float64 { return d.Seconds() / float64(max(s.Beats, 1)) * 1000 }
	rate := func(n float64) float64 { return n / s.Elapsed.Seconds() }
	return []Row{
		{Key: "steady_beats", What: "heartbeats a second, steady", Unit: "/s", Value: s.perSecond()},
		{Key: "steady_delegated", What: "… of them delegated", Unit: "/s", Value: rate(float64(s.Delegated))},
		{Key: "steady_reports", What: "… statuses of Nodes besides", Unit: "/s", Value: rate(float64(s.Reported))},
		spread("steady_put", "… answered by the API server after", s.PUT, 0),
		{Key: "steady_cpu", What: "… CPU of the controller", Unit: "ms/s", Value: rate(s.CPU.Seconds()) * 1000},
		{Key: "steady_cpu_per_1000", What: "… CPU per 1000 heartbeats", Unit: "s", Value: per(s.CPU)},
		{Key: "steady_api_per_1000", What: "… of kube-apiserver", Unit: "s", Value: per(s.API)},
		{Key: "steady_etcd_per_1000", What: "… of etcd", Unit: "s", Value: per(s.Etcd)},
		megabytes("steady_rss", "… RSS", s.Controller.Memory.RSS),
		megabytes("steady_anonymous", "… of it anonymous", s.Controller.Memory.Anonymous),
		megabytes("steady_heap", "… Go's heap in use", s.Heap),
		{Key: "steady_garbage", What: "… garbage", Unit: "MB/s", Value: rate(float64(s.Allocated)) / 1e6},
		{Key: "steady_collections", What: "… collections of it", Unit: "/s", Value: rate(float64(s.Collections))},
		{Key: "steady_requests", What: "… requests of the controller", Unit: "/s", Value: rate(float64(s.Requests.total()))},
	}
}

func (l Lag) rows() []Row {
	key := func(what string) string { return fmt.Sprintf("lag_%d_%s", l.Nodes, what) }
	nodes := fmt.Sprintf("%d nodes", l.Nodes)
	if l.Nodes == 1 {
		nodes = "1 node"
	}
	return []Row{
		spread(key("taint"), "links of "+nodes+" at once: cut → taint", l.Taint, lagBudget),
		spread(key("condition"), "… → condition", l.Condition, 0),
		spread(key("listed"), "… → status.delegatedNodes", l.Listed, 0),
		spread(key("untaint"), "… healed → no taint", l.Untaint, lagBudget),
		spread(key("restored"), "… → condition", l.Restored, 0),
		spread(key("unlisted"), "… → status.delegatedNodes", l.Unlisted, 0),
		{Key: key("writes"), What: "… writes for each node and turn", Value: l.writes()},
	}
}

func seconds(key, what string, d time.Duration) Row {
	return Row{Key: key, What: what, Unit: "s", Value: d.Seconds()}
}

func megabytes(key, what string, n int64) Row {
	return Row{Key: key, What: what, Unit: "MB", Value: float64(n) / 1e6}
}

func count(key, what string, n int) Row { return Row{Key: key, What: what, Value: float64(n)} }

// spread returns a row with value and budget for the 99th percentile.
func spread(key, what string, s Spread, budget float64) Row {
	return Row{Key: key + "_p99", What: what, Unit: "s", Value: s.P99.Seconds(), Budget: budget, Text: s.String()}
}

// Table prints the report for people.
func (r Report) Table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tMEASURED\tBUDGET\t")
	over := 0
	for _, row := range r.Rows() {
		text, budget := row.Text, ""
		if text == "" {
			text = strings.TrimSpace(figure(row.Value) + " " + row.Unit)
		}
		if row.Budget > 0 {
			budget = fmt.Sprintf("≤ %g %s", row.Budget, row.Unit)
		}
		if row.Over() {
			over++
			budget += " OVER BUDGET"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", row.What, text, budget)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, w := range []struct {
		what string
		requests
	}{
		{"start", r.Arrival.Requests}, {"first fill", r.Fill.Requests}, {"steady", r.Steady.Requests},
	} {
		fmt.Fprintf(out, "\nrequests, %s: %v\n", w.what, w.requests)
	}
	_, err := fmt.Fprintf(out, "\n%d over budget. Of several: p50 / p99 / max; budgets are of the p99.\n", over)
	return err
}

// figure formats a number with three significant digits.
func figure(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
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
	for _, row := range r.Rows() {
		key := row.Key
		units := map[string]string{"s": "s", "MB": "mb", "/s": "per_s", "MB/s": "mb_per_s", "ms/s": "ms_per_s"}
		if unit := units[row.Unit]; unit != "" {
			key += "_" + unit
		}
		out[key] = math.Round(row.Value*1000) / 1000
		if row.Over() {
			out["over_budget"]++
		}
	}
	return out
}
