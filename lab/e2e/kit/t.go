// Package kit is what end-to-end scenarios are written with: a T, which is one run in its own lab, with figures and a
// transcript; the cloud's history (chronicle.go); and the lab's Cloud, its first Pool and its Nodes, with the questions and
// waits that more than one theme needs. What only one theme needs is in the package of that theme.
package kit

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"yurtcoordinator/lab"
)

// T is a running scenario.
type T struct {
	scenario Scenario
	out      io.Writer
	// Start is when the scenario began.
	Start time.Time

	// Ctx ends with the scenario.
	Ctx  context.Context //nolint:containedctx // a T is one run, as testing.T is
	stop context.CancelCauseFunc
	// Background is what runs beside the scenario, which waits for it at its end.
	Background sync.WaitGroup

	// Lab is the scenario's own lab, Config the configuration that it was made from.
	Lab    *lab.Client
	Config lab.Config
	Cloud  Cloud
	Pool   Pool
	// Seen is the history of the cloud since the boot.
	Seen *Chronicle
	// alone is how many lists over the WAN each resource had cost at the moment when all hubs first had it from the right
	// source. Only an installed lab uses it.
	alone map[string]int

	mu      sync.Mutex
	figures map[string]float64
	// steps are the commands of pages that have been run, by where they stand.
	steps map[string]bool
}

// failure is what a failed assertion panics with.
type failure struct{ error }

func (t *T) boot(ctx context.Context, o Options) error {
	t.Ctx, t.stop = context.WithCancelCause(ctx)
	cfg := t.scenario.Lab
	cfg.Name = o.LabName
	t.Say("scenario %s: %s", t.scenario.Name, t.scenario.Doc)
	client, err := o.Start(t.Ctx, cfg)
	if err != nil {
		return err
	}
	t.Lab = client
	if t.Config, err = client.Config(); err != nil {
		return err
	}
	t.Pool = Pool{t}
	if t.Config.Bare {
		return nil // the scenario makes the cloud
	}
	return t.meetCloud()
}

func (t *T) meetCloud() (err error) {
	if t.Cloud, err = newCloud(t); err != nil {
		return err
	}
	t.Seen, err = observe(t.Ctx, t.Cloud, &t.Background)
	return err
}

// Follow makes the lab take the cluster that the scenario has made in a bare lab for its cloud. kubeconfig is its
// administrator's.
func (t *T) Follow(kubeconfig []byte) {
	t.Must(t.Lab.Follow(t.Ctx, kubeconfig))
	t.Must(t.meetCloud())
}

// Protect runs f and turns a failed assertion into an error.
func (t *T) Protect(f func(*T)) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f(t)
	return nil
}

// Say writes a line of the transcript.
func (t *T) Say(format string, args ...any) {
	fmt.Fprintf(t.out, "%7.1fs  %s\n", time.Since(t.Start).Seconds(), fmt.Sprintf(format, args...))
}

// Fail ends the scenario.
func (t *T) Fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Must ends the scenario if err is not nil.
func (t *T) Must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Figure records a measured value, rounded to thousandths (seconds to milliseconds), and prints it. Of several values under one
// name it keeps the largest, which is the worst.
func (t *T) Figure(name string, value float64) {
	value = math.Round(value*1000) / 1000
	t.mu.Lock()
	t.figures[name] = max(value, t.figures[name])
	t.mu.Unlock()
	t.Say("figure: %s = %.10g", name, value)
}

// FigureOnce is Figure for values that are worst when small: it keeps the first of several under one name.
func (t *T) FigureOnce(name string, value float64) {
	t.mu.Lock()
	_, there := t.figures[name]
	t.mu.Unlock()
	if !there {
		t.Figure(name, value)
	}
}

// Eventually waits until check returns nil, for at most the given time, and returns how long it took.
func (t *T) Eventually(within time.Duration, what string, check func() error) time.Duration {
	start := time.Now()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		err := check()
		took := time.Since(start)
		if err == nil {
			t.Say("%s (%.2fs)", what, took.Seconds())
			return took
		}
		select {
		case <-every.C:
		case <-deadline.C:
			t.Fail("not within %v: %s: %w", within, what, err)
		case <-t.Ctx.Done():
			t.Fail("%s: %w", what, context.Cause(t.Ctx))
		}
	}
}

// Hold lets time pass, to show that something does not happen.
func (t *T) Hold(d time.Duration, why string) {
	t.Say("for %v: %s", d, why)
	t.Pause(d, why)
}

// Pause waits for d.
func (t *T) Pause(d time.Duration, why string) {
	select {
	case <-time.After(d):
	case <-t.Ctx.Done():
		t.Fail("%s: %w", why, context.Cause(t.Ctx))
	}
}
