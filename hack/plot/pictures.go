package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// pictures are all pictures, by their files, with the files of results that they are of.
var pictures = map[string]struct {
	data  string
	chart func(Results) (chart, error)
}{
	"wan-bytes.svg":          {"one-copy.json", wanBytes},
	"coordinator-memory.svg": {"coordinator-memory.json", memory},
	"cut-to-taint.svg":       {"cuts.json", cutToTaint},
}

// megabytes writes bytes.
func megabytes(v float64) string { return strconv.FormatFloat(v/1e6, 'f', -1, 64) + " MB" }

// wanBytes is what a pool's first fill costs over the WAN, against the number of its nodes.
func wanBytes(r Results) (chart, error) {
	const scenario = "one-copy-"
	shared := line{name: "here: one copy for the pool"}
	alone := line{name: "without sharing: a copy for each node", dashed: true}
	for _, run := range r.Runs {
		n, err := strconv.ParseFloat(strings.TrimPrefix(run.Of, scenario), 64)
		if err != nil {
			return chart{}, fmt.Errorf("%s: want %sN", run.Of, scenario)
		}
		pool, ok := run.Figures["fill_pool_bytes"]
		direct, ok2 := run.Figures["fill_direct_pool_bytes"]
		if !ok || !ok2 {
			return chart{}, fmt.Errorf("%s has no bytes of the fill", run.Of)
		}
		shared.points = append(shared.points, point{n, pool})
		alone.points = append(alone.points, point{n, direct})
	}
	if len(shared.points) < 2 {
		return chart{}, errors.New("a line needs two numbers of nodes")
	}
	var ticks []float64
	for _, l := range []line{shared, alone} {
		slices.SortFunc(l.points, func(a, b point) int { return int(a[0] - b[0]) })
	}
	for _, p := range shared.points {
		ticks = append(ticks, p[0])
	}
	return chart{
		title: "1000 Services of 50 endpoints: what filling a pool costs over the WAN",
		x: axis{
			label: "nodes of the pool, each with a client that reads all", from: ticks[0] * 0.9, to: ticks[len(ticks)-1] * 1.1,
			log: true, ticks: ticks,
		},
		y:     axis{label: "bytes over all links", from: 1e5, to: 1e9, log: true, show: megabytes},
		lines: []line{alone, shared}, note: r.source(),
	}, nil
}

// memory is a coordinator's memory while objects are patched without end.
func memory(r Results) (chart, error) {
	if len(r.Runs) != 1 {
		return chart{}, errors.New("want one run")
	}
	run := r.Runs[0]
	c := chart{
		title: "A coordinator with 1000 Pods and 500 Nodes, patched without end",
		x:     axis{label: "seconds of patching"}, y: axis{label: "MB", to: 280}, note: r.source(),
	}
	for _, s := range []struct{ series, name string }{
		{"rss-MB", "resident"}, {"anon-MB", "of it anonymous"},
	} {
		l := line{name: s.name, points: run.Series[s.series]}
		if loaded, ok := run.Figures["loaded-"+s.series]; ok {
			l.points = append([]point{{0, loaded}}, l.points...)
		}
		if len(l.points) < 3 {
			return chart{}, fmt.Errorf("there are %d points of %s", len(l.points), s.series)
		}
		c.x.to = max(c.x.to, l.points[len(l.points)-1][0])
		c.lines = append(c.lines, l)
	}
	c.lines = append(c.lines, line{name: "the budget", dashed: true, points: []point{{0, 256}, {c.x.to, 256}}})
	return c, nil
}

// cutToTaint is the share of runs in which a node that is cut off takes no new Pods, against the time since the cut.
func cutToTaint(r Results) (chart, error) {
	c := chart{
		title: "From a silent cut to the first delegated heartbeat and the taint",
		x:     axis{label: "seconds since the cut"},
		y:     axis{label: "share of runs", to: 1, show: func(v float64) string { return fmt.Sprintf("%.0f %%", v*100) }},
		note:  r.source(),
	}
	groups := map[string][]float64{}
	for _, run := range r.Runs {
		heartbeat, ok := run.Figures["cut_to_first_delegated_heartbeat_s"]
		taint, ok2 := run.Figures["annotation_to_taint_s"]
		if !ok || !ok2 {
			return chart{}, fmt.Errorf("%s has no times", run.Of)
		}
		groups[run.Group] = append(groups[run.Group], heartbeat+taint)
		c.x.to = max(c.x.to, heartbeat+taint)
	}
	c.x.to = float64(int(c.x.to) + 2)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		times := slices.Sorted(slices.Values(groups[name]))
		l := line{name: fmt.Sprintf("%s: %d runs", name, len(times)), steps: true, points: []point{{0, 0}}}
		for i, t := range times {
			l.points = append(l.points, point{t, float64(i+1) / float64(len(times))})
		}
		l.points = append(l.points, point{c.x.to, 1})
		c.lines = append(c.lines, l)
	}
	if len(c.lines) == 0 {
		return chart{}, errors.New("there are no runs")
	}
	return c, nil
}

// source says what was measured, when and where.
func (r Results) source() string {
	first, last := "", ""
	for _, run := range r.Runs {
		if first == "" || run.Date < first {
			first = run.Date
		}
		last = max(last, run.Date)
	}
	if first != last {
		last = first + " to " + last
	}
	return fmt.Sprintf("%s, %s; %s", r.Command, last, r.Machine)
}
