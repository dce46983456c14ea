package machinery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Check is one behaviour.
type Check struct {
	Name string
	// kind is the name of the resource that the check is about; empty means several.
	kind string
	// Reads says that the check only reads the examined side, so that a node can run it.
	Reads bool
	run   func(e *Env)
}

// Side is one way to run the checks.
type Side struct {
	// Name is for reports. Slug is for its namespaces and its group of custom resources: lower-case letters.
	Name, Slug string
	// Reader is examined. Writer writes; if both are the same, writing is examined as well.
	Reader, Writer *Access
}

// Suite is what to run.
type Suite struct {
	// Truth is the side that the other sides are compared with.
	Truth  Side
	Others []Side
	// ReadsOnly leaves out the checks that must write.
	ReadsOnly bool
	// Kinds, if not empty, limits the resources for checks that run once per resource.
	Kinds []string
	// Admin prepares.
	Admin *Access
	// Prepared is called when a side's custom resources exist, before its checks.
	Prepared func(ctx context.Context, side Side) error
	// Parallel is how many checks run at a time; 0 means 2.
	Parallel int
}

// Report is the result.
type Report struct {
	Checks int
	// Steps is how many steps one side's transcripts have in all checks.
	Steps int
	// Differences are all differences, by the side's name. Excepted counts the allowed ones among them, and Known those allowed
	// ones that are faults.
	Differences     map[string][]Difference
	Excepted, Known map[string]int
	// Slow are the slowest checks, with their times.
	Slow []string
}

// checkTime bounds one check on all sides.
const checkTime = 3 * time.Minute

// outcome is the result of a check on one side.
type outcome struct {
	steps []Step
	wrong error
	took  time.Duration
}

// Run runs the checks. Its error names each difference that is not allowed, each exception that nothing needs, and each
// assertion that does not hold even at the truth, the API server.
func (s Suite) Run(ctx context.Context) (Report, error) {
	report := Report{Differences: map[string][]Difference{}, Excepted: map[string]int{}, Known: map[string]int{}}
	sides := append([]Side{s.Truth}, s.Others...)
	for _, side := range sides {
		if err := s.prepare(ctx, side); err != nil {
			return report, fmt.Errorf("prepare %s: %w", side.Name, err)
		}
	}
	var checks []Check
	for _, c := range All() {
		if (c.Reads || !s.ReadsOnly) && (c.kind == "" || len(s.Kinds) == 0 || slices.Contains(s.Kinds, c.kind)) {
			checks = append(checks, c)
		}
	}
	report.Checks = len(checks)
	results := s.runAll(ctx, checks, sides)
	var faults []error
	report.Slow = slowest(checks, results)
	for i, c := range checks {
		truth := results[i][0]
		report.Steps += len(truth.steps)
		if truth.wrong != nil {
			faults = append(faults, fmt.Errorf("%s, at %s: %w", c.Name, s.Truth.Name, truth.wrong))
		}
		for j, side := range s.Others {
			report.Differences[side.Name] = append(report.Differences[side.Name],
				Compare(c.Name, truth.steps, results[i][j+1].steps)...)
		}
	}
	names := make([]string, 0, len(checks))
	for _, c := range checks {
		names = append(names, c.Name)
	}
	may := exceptionsOf(names...)
	for _, side := range s.Others {
		all := report.Differences[side.Name]
		unmeant := slices.DeleteFunc(slices.Clone(may), func(e Exception) bool { return e.Fault })
		bad, _ := Judge(side.Name, all, may)
		known, _ := Judge(side.Name, all, unmeant)
		report.Excepted[side.Name], report.Known[side.Name] = len(all)-len(bad), len(known)-len(bad)
		faults = append(faults, complain(side.Name, all, may))
	}
	return report, errors.Join(faults...)
}

// slowest names the slowest checks, on any side.
func slowest(checks []Check, results [][]outcome) []string {
	const most = 5
	order := make([]int, len(checks))
	took := make([]time.Duration, len(checks))
	for i := range checks {
		order[i] = i
		for _, o := range results[i] {
			took[i] = max(took[i], o.took)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(took[b], took[a]) })
	var all []string
	for _, i := range order[:min(most, len(order))] {
		all = append(all, fmt.Sprintf("%s %.1fs", checks[i].Name, took[i].Seconds()))
	}
	return all
}

// complain returns an error with the differences that no exception covers, and the exceptions that nothing needs.
func complain(side string, all []Difference, may []Exception) error {
	bad, stale := Judge(side, all, may)
	var faults []error
	for _, d := range bad {
		faults = append(faults, fmt.Errorf("%s: %s", side, d))
	}
	for _, e := range stale {
		faults = append(faults, fmt.Errorf("%s: the exception for %s allows what is no longer so: remove it", side, e))
	}
	return errors.Join(faults...)
}

// exceptionsOf returns the exceptions that these checks may need.
func exceptionsOf(checks ...string) []Exception {
	var out []Exception
	for _, e := range exceptions {
		if slices.ContainsFunc(checks, func(name string) bool {
			return glob(e.Check, name) && (name != "kubectl" || e.Check == name)
		}) {
			out = append(out, e)
		}
	}
	return out
}

// runAll runs each check on all sides at the same time, several checks at a time.
func (s Suite) runAll(ctx context.Context, checks []Check, sides []Side) [][]outcome {
	results := make([][]outcome, len(checks))
	slots := make(chan struct{}, max(s.Parallel, 2))
	var running sync.WaitGroup
	for i, c := range checks {
		results[i] = make([]outcome, len(sides))
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			var together sync.WaitGroup
			for j, side := range sides {
				together.Go(func() { results[i][j] = s.runOne(ctx, c, side, i) })
			}
			together.Wait()
		})
	}
	running.Wait()
	return results
}

// runOne runs a check on one side.
func (s Suite) runOne(ctx context.Context, c Check, side Side, number int) (out outcome) {
	e := &Env{
		ctx: ctx, Reader: side.Reader, Writer: side.Writer,
		Namespace: fmt.Sprintf("machinery-%s-%d", side.Slug, number), Group: group(side),
		transcript: Transcript{Aliases: map[string]string{}},
	}
	e.Alias(e.Namespace, "NAMESPACE")
	e.Alias(e.Group, "GROUP")
	start := time.Now()
	defer func() {
		caught := recover()
		if end, ok := caught.(stopped); ok {
			e.wrong = append(e.wrong, end.error)
			caught = nil
			_ = e.transcript.add("the check ended early", end.Error()) // a string is JSON
		}
		if caught != nil {
			panic(caught)
		}
		out = outcome{e.transcript.Canonical(), errors.Join(e.wrong...), time.Since(start)}
	}()
	err := s.apply(ctx, "/api/v1/namespaces", Object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": Object{"name": e.Namespace},
	})
	e.Must(err)
	c.run(e)
	return out
}

func group(side Side) string { return side.Slug + ".machinery.example" }

// prepare makes a side's custom resources.
func (s Suite) prepare(ctx context.Context, side Side) error {
	if err := s.apply(ctx, pathCRDs, widgetsDefinition(group(side))); err != nil {
		return err
	}
	e := &Env{ctx: ctx, Reader: s.Admin, Writer: s.Admin, Group: group(side), Namespace: "default"}
	for {
		a, err := e.ask(s.Admin, Request{Path: of("widgets").path(e)})
		if err == nil && a.Status == http.StatusOK {
			break
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if s.Prepared == nil {
		return nil
	}
	return s.Prepared(ctx, side)
}

// apply creates an object as the administrator.
func (s Suite) apply(ctx context.Context, path string, o Object) error {
	e := &Env{ctx: ctx}
	a, err := e.ask(s.Admin, Request{Method: http.MethodPost, Path: path, Body: o})
	if err == nil && a.Status != http.StatusCreated {
		err = fmt.Errorf("create %s: %d %s", nameOf(o), a.Status, a.Raw)
	}
	return err
}
