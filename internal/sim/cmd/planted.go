package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// gateTime is the processor time after which the search for a fault ends. The tests that each change must pass may use as much
// for the simulation: two cores for 2 minutes.
const gateTime = 4 * time.Minute

// plantedBatch is how many histories a process simulates in the search for a fault; the next process uses other weights.
// plantedNodes is how many nodes the pool of such a history has, unless the fault needs more. A small pool costs less, and an
// event in it more often hits the node that shows the fault.
const plantedBatch, plantedNodes = 4, 3

// planted is the source that an overlay adds to each package with a fault.
const planted = `package %s

import "os"

var simPlanted = os.Getenv("SIM_PLANTED")
`

// overlay writes the product's files with all faults into dir. It returns the name of the file for go build's -overlay. root is
// the directory of the module. overlay fails if the old text of an edit is not in its file exactly once.
func overlay(root, dir string, faults []fault) (file string, err error) {
	texts := map[string]string{}
	for _, f := range faults {
		for _, e := range f.edits {
			text, known := texts[e.file]
			if !known {
				content, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					return "", err
				}
				text = string(content)
			}
			if n := strings.Count(text, e.from); n != 1 {
				return "", fmt.Errorf("fault %q: %s has these lines %d times, or another fault has changed them:\n%s",
					f.name, e.file, n, e.from)
			}
			to := strings.ReplaceAll(e.to, "PLANTED", fmt.Sprintf("(simPlanted == %q)", f.name))
			texts[e.file] = strings.Replace(text, e.from, to, 1)
		}
	}
	for _, name := range slices.Collect(maps.Keys(texts)) {
		in := filepath.Dir(name)
		texts[filepath.Join(in, "sim_planted.go")] = fmt.Sprintf(planted, filepath.Base(in))
	}
	replace := map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		to := filepath.Join(dir, fmt.Sprintf("planted%d.go", i))
		if err := os.WriteFile(to, []byte(texts[name]), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, content, 0o600)
}

// found is the result of the search for a fault.
type found struct {
	by    string // the clauses that caught it, with the seed; empty means that none did
	other string // what other clauses caught before that
	seeds int
	spent time.Duration
	err   error
}

// plant looks for the faults whose names contain a text, each for at most the gate's time, and prints a table.
func (e *explorer) plant(ctx context.Context, only string) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the system's own place for such files
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	file, err := overlay(root, dir, faults)
	if err != nil {
		return err
	}
	binary, err := build(ctx, dir, "-overlay="+file)
	if err != nil {
		return err
	}
	results := make([]found, len(faults))
	queue := make(chan int)
	var running sync.WaitGroup
	for range e.processes {
		running.Go(func() {
			for i := range queue {
				results[i] = faults[i].find(ctx, binary, dir, e.next)
				fmt.Fprintf(os.Stderr, "%s: %+v\n", faults[i].name, results[i])
			}
		})
	}
	for i, f := range faults {
		if strings.Contains(f.name, only) {
			queue <- i
		}
	}
	close(queue)
	running.Wait()
	return table(results, e.next)
}

// table prints the results for the faults as a table of Markdown.
func table(results []found, first uint64) (err error) {
	fmt.Printf("First seed %d.\n\n", first)
	fmt.Print("| fault | must be caught by | was caught by | histories | CPU s |\n| --- | --- | --- | --- | --- |\n")
	for i, r := range results {
		f := faults[i]
		if r == (found{}) { // it was not looked for
			continue
		}
		fmt.Printf("| %s | %s | %s | %d | %.0f |\n", f.name, cmp.Or(f.clause, "nothing"), r.says(), r.seeds, r.spent.Seconds())
		if blind := (r.by == "") != (f.clause == "") || f.clause == "" && r.other != ""; blind && err == nil {
			err = errBlind
		}
		if r.err != nil {
			err = r.err
		}
	}
	return err
}

func (r found) says() string {
	if r.other != "" {
		return fmt.Sprintf("%s (before: %s)", cmp.Or(r.by, "nothing"), r.other)
	}
	return cmp.Or(r.by, "nothing")
}

var errBlind = fmt.Errorf("a fault is not found within %v of processor time, or a harmless change is reported", gateTime)

var (
	breach = regexp.MustCompile(`BREACH of seed \d+: (\[.*\])`) // a constant
	clause = regexp.MustCompile(`(?:\[|" )"(\w+): `)            // a constant
)

// find simulates histories with the fault until one breaks the fault's clause, or gateTime is spent. A clause that the same
// histories break without the fault does not count.
func (f fault) find(ctx context.Context, binary, dir string, next uint64) (r found) {
	themes := []string{"all", "links", "servers", "machines"}
	if f.clause == "read" || f.clause == "current" {
		themes = []string{"data"}
	}
	for n := 0; r.spent < gateTime && r.err == nil; n++ {
		lives := func(from uint64, count int, planted string) (by []string, lived int) {
			out, speeds, spent, err := live(ctx, binary, dir, from, count, "-test.failfast",
				"SIM_PLANTED="+planted, "SIM_WEIGHTS="+themes[n%len(themes)],
				fmt.Sprintf("SIM_NODES=%d", cmp.Or(f.nodes, plantedNodes)),
				fmt.Sprintf("SIM_COORDINATORS=%d", max(f.coordinators, 1)))
			r.spent += spent
			if broken := breach.FindStringSubmatch(out); broken != nil {
				for _, c := range clause.FindAllStringSubmatch(broken[1], -1) {
					by = append(by, c[1])
				}
			} else if err != nil {
				r.err = fmt.Errorf("fault %q: %w\n%s", f.name, err, out)
			}
			slices.Sort(by)
			return slices.Compact(by), len(speeds)
		}
		by, lived := lives(next, plantedBatch, f.name)
		next += uint64(lived)
		r.seeds += lived
		if len(by) == 0 {
			continue
		}
		// The last history has broken these clauses. A clause that these histories break without the fault does not count.
		itself, _ := lives(next-uint64(lived), lived, "nothing")
		by = slices.DeleteFunc(by, func(c string) bool { return slices.Contains(itself, c) })
		switch at := fmt.Sprintf("%s, seed %d", strings.Join(by, " "), next-1); {
		case slices.Contains(by, f.clause):
			r.by = at
			return r
		case len(by) > 0:
			r.other = strings.TrimPrefix(r.other+"; "+at, "; ")
		}
	}
	return r
}
