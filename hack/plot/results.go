package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Results are runs of one kind.
type Results struct {
	// Command is what was run, and Machine on what.
	Command string `json:"command"`
	Machine string `json:"machine"`
	Runs    []Run  `json:"runs"`
}

// Run is what one run has measured.
type Run struct {
	// Of is the scenario or benchmark.
	Of     string `json:"of"`
	Date   string `json:"date"`
	Commit string `json:"commit"`
	// Group is the line of the picture that the run belongs to, where there are several.
	Group   string             `json:"group,omitempty"`
	Figures map[string]float64 `json:"figures,omitempty"`
	// Series are figures over time, in seconds.
	Series map[string][]point `json:"series,omitempty"`
}

// add takes in a run, in place of a former one of the same group and kind.
func (r *Results) add(run Run) {
	r.Runs = slices.DeleteFunc(r.Runs, func(old Run) bool { return old.Of == run.Of && old.Group == run.Group })
	r.Runs = append(r.Runs, run)
	slices.SortFunc(r.Runs, func(a, b Run) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Of, b.Of)) })
}

// only leaves the figures of these names, separated by commas; an empty list leaves all.
func (r Run) only(names string) Run {
	if names == "" {
		return r
	}
	kept := map[string]float64{}
	for name := range strings.SplitSeq(names, ",") {
		if v, ok := r.Figures[name]; ok {
			kept[name] = v
		}
	}
	r.Figures = kept
	return r
}

var (
	// scenarioLine, figureLine and seriesLine are lines of a scenario's transcript, and of BenchmarkMemory's log.
	scenarioLine = regexp.MustCompile(`(?m)^ *[\d.]+s  scenario ([a-z0-9-]+): `)
	figureLine   = regexp.MustCompile(`(?m)^ *[\d.]+s  figure: (\w+) = (\S+)$`)
	benchLine    = regexp.MustCompile(`(?m)^(Benchmark[\w/]+?)(?:-\d+)? +\t`)
	seriesLine   = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: (\d+) s: map\[(.+)\]$`)
	benchFigure  = regexp.MustCompile(`\t *([\d.e+]+) ([\w-]+-MB)`)
)

// read finds what was measured in what a run has printed: the result in its last line (`-o json`), or the figures of its
// transcript. Of several figures of a name the first counts: in a transcript a later one may be of another kind, as a taint that
// is held back because it has changed before.
func read(log string) (Run, error) {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	var result struct {
		Scenario, Bench string
		Passed          *bool
		Figures         map[string]float64
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err == nil && len(result.Figures) > 0 {
		if result.Passed != nil && !*result.Passed {
			return Run{}, errors.New("the run has failed")
		}
		return Run{Of: cmp.Or(result.Scenario, result.Bench), Figures: result.Figures}, nil
	}
	if m := scenarioLine.FindStringSubmatch(log); m != nil {
		run := Run{Of: m[1], Figures: map[string]float64{}}
		for _, f := range figureLine.FindAllStringSubmatch(log, -1) {
			v, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return Run{}, err
			}
			if _, there := run.Figures[f[1]]; !there {
				run.Figures[f[1]] = v
			}
		}
		if !strings.HasSuffix(lines[len(lines)-1], "  passed") || len(run.Figures) == 0 {
			return Run{}, errors.New("the run has not passed, or has no figures")
		}
		return run, nil
	}
	return readBenchmark(log)
}

// readBenchmark is read for what `go test -bench Memory` prints: a benchmark, and its memory every ten seconds.
func readBenchmark(log string) (Run, error) {
	m := benchLine.FindStringSubmatch(log)
	if m == nil {
		return Run{}, errors.New("that is no log of a scenario, and none of a benchmark")
	}
	run := Run{Of: m[1], Figures: map[string]float64{}, Series: map[string][]point{}}
	_, rest, _ := strings.Cut(log, m[0])
	first, _, _ := strings.Cut(m[0]+rest, "\n")
	for _, f := range benchFigure.FindAllStringSubmatch(first, -1) {
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return Run{}, err
		}
		run.Figures[f[2]] = v
	}
	for _, l := range seriesLine.FindAllStringSubmatch(log, -1) {
		at, err := strconv.ParseFloat(l[1], 64)
		if err != nil {
			return Run{}, err
		}
		for pair := range strings.FieldsSeq(l[2]) {
			name, text, _ := strings.Cut(pair, ":")
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return Run{}, err
			}
			run.Series[name] = append(run.Series[name], point{at, v})
		}
	}
	if len(run.Figures) == 0 || len(run.Series) == 0 {
		return Run{}, errors.New("the benchmark says nothing of memory over time")
	}
	return run, nil
}
