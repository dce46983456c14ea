// Package e2e holds the end-to-end scenarios: scripts that boot a lab of real Kubernetes components, break it, and hold
// what the cloud saw against what must be seen. `yurtlab run NAME` runs one, the tests of this package run them all.
//
// A scenario asserts on the history of the cloud (the watches of history.go), not on samples: "never NotReady" means
// that no watch event said so, not that a poll missed it.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

// Scenario is one end-to-end script.
type Scenario struct {
	Name string
	// Doc says in one line what is done and what must be seen.
	Doc string
	// Quick scenarios are run by `make test`, all by `make e2e`.
	Quick bool
	// Lab is the lab that it needs; the name and, if empty, the kind of kubelet are filled in.
	Lab lab.Config
	run func(t *T)
}

// All returns the scenarios, in the order in which they are run.
func All() []Scenario {
	return slices.Concat(linkScenarios, birthScenarios, shapedScenarios, deathScenarios, leaderScenarios,
		coordinatorScenarios, accessScenarios, streamScenarios, sharingScenarios, oneCopyScenarios, cloudLieScenarios,
		poolScopeScenarios, offlineScenarios, freshScenarios, identityScenarios, podScenarios, herdScenarios, autonomyScenarios,
		installScenarios, staticPodScenarios, kubeadmScenarios, helmScenarios, installedScenarios, lifeScenarios,
		notReadyScenarios, rotationScenarios, ownObjectScenarios, opsScenarios, statusScenarios, failingScenarios, stormScenarios,
		leakedKeyScenarios, machineryScenarios, poolCutScenarios, restoredScenarios, monthScenarios, rolloutScenarios,
		revokedScenarios)
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return Scenario{}, fmt.Errorf("no scenario %q: want one of\n%s", name, List())
}

// List describes all scenarios, a line each.
func List() string {
	var b strings.Builder
	for _, s := range All() {
		fmt.Fprintf(&b, "  %-18s %s\n", s.Name, s.Doc)
	}
	return b.String()
}

// Options are how a scenario is run.
type Options struct {
	LabName string
	Out     io.Writer
	// KeepFailed leaves the lab of a failed scenario up, for somebody to look at.
	KeepFailed bool
	// Start boots a lab, and leaves nothing of it if that fails.
	Start func(context.Context, lab.Config) (*lab.Client, error)
}

// Result is how a scenario ended.
type Result struct {
	Scenario string             `json:"scenario"`
	Passed   bool               `json:"passed"`
	Error    string             `json:"error,omitempty"`
	Figures  map[string]float64 `json:"figures"`
}

// Run boots a lab, runs a scenario in it and ends the lab, whatever happened.
func Run(ctx context.Context, s Scenario, o Options) Result {
	t := &T{scenario: s, out: o.Out, start: time.Now(), figures: map[string]float64{}, carriedBefore: map[string]wire.Bytes{}}
	err := t.boot(ctx, o)
	if err == nil {
		err = errors.Join(t.protect(func(t *T) { hubsFound(t); s.run(t) }), t.protect(bytesCarried), t.protect(noCrash))
		t.stop(errors.New("the scenario has ended"))
		t.background.Wait()
	}
	switch {
	case t.lab == nil: // it did not boot, and is down again; or one of that name was up before, and is somebody else's
	case err != nil && o.KeepFailed:
		t.say("the lab is left up; look around with --name %s, then: yurtlab down --name %s", o.LabName, o.LabName)
	default:
		err = errors.Join(err, lab.Down(context.WithoutCancel(ctx), o.LabName)) // also when the caller has given up
	}
	r := Result{Scenario: s.Name, Passed: err == nil, Figures: t.figures}
	if err != nil {
		r.Error = err.Error()
		t.say("FAILED: %v", err)
	} else {
		t.say("passed")
	}
	return r
}

// T is a running scenario.
type T struct {
	scenario Scenario
	out      io.Writer
	start    time.Time

	ctx        context.Context //nolint:containedctx // a T is one run, as testing.T is
	stop       context.CancelCauseFunc
	background sync.WaitGroup

	lab   *lab.Client
	cfg   lab.Config
	cloud kubernetes.Interface
	// objects is a client of any kind in the cloud.
	objects dynamic.Interface
	// seen is the cloud's history since the boot.
	seen *history
	// alone is, of an installed lab, how many lists over the WAN a resource had cost when all first had it from the
	// coordinator.
	alone map[string]int

	// carriedBefore is what a node's cable had carried when its hub was started anew; of others nothing.
	carriedBefore map[string]wire.Bytes

	mu      sync.Mutex
	figures map[string]float64
}

// failure is what a failed assertion panics with.
type failure struct{ error }

func (t *T) boot(ctx context.Context, o Options) error {
	t.ctx, t.stop = context.WithCancelCause(ctx)
	cfg := t.scenario.Lab
	cfg.Name = o.LabName
	t.say("scenario %s: %s", t.scenario.Name, t.scenario.Doc)
	client, err := o.Start(t.ctx, cfg)
	if err != nil {
		return err
	}
	t.lab = client
	if t.cfg, err = client.Config(); err != nil {
		return err
	}
	access, err := client.CloudConfig()
	if err != nil {
		return err
	}
	if t.cloud, err = kubernetes.NewForConfig(access); err != nil {
		return err
	}
	if t.objects, err = dynamic.NewForConfig(access); err != nil {
		return err
	}
	t.seen, err = observe(t.ctx, t.cloud, &t.background)
	return err
}

// hubsFound waits, in an installed lab, until every hub has found its pool's coordinator: one that began before the
// coordinator was there looks again after 30 s at most.
func hubsFound(t *T) {
	if !t.cfg.Installed || t.cfg.NoCoordinator {
		return
	}
	t.eventually(60*time.Second, "every hub has found the coordinator", func() error {
		for name, hub := range t.hubs() {
			if hub.Role == rolePending {
				return fmt.Errorf("%s is %s", name, hub.Role)
			}
		}
		return nil
	})
}

// crashes are what a Go program writes when it is broken, whatever the scenario was about.
var crashes = []string{"WARNING: DATA RACE", "panic: ", "fatal error: "}

// noCrash holds the logs of our own programs against the marks of a crash.
func noCrash(t *T) {
	logs, err := t.lab.Logs()
	t.must(err)
	for _, path := range logs {
		content, err := os.ReadFile(path)
		t.must(err)
		for _, mark := range crashes {
			if i := bytes.Index(content, []byte(mark)); i >= 0 {
				t.fail("%s: %s", path, content[i:min(len(content), i+2000)])
			}
		}
	}
}

// bytesCarried records what the WAN links of all nodes carried since the boot.
func bytesCarried(t *T) {
	all, err := t.lab.Traffic(t.ctx, false)
	t.must(err)
	var sum wire.Bytes
	for _, b := range all {
		sum = sum.Add(b)
	}
	t.figure("wan_bytes_up", float64(sum.Up))
	t.figure("wan_bytes_down", float64(sum.Down))
}

// protect runs f and turns a failed assertion into an error.
func (t *T) protect(f func(*T)) (err error) {
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

// say writes a line of the transcript.
func (t *T) say(format string, args ...any) {
	fmt.Fprintf(t.out, "%7.1fs  %s\n", time.Since(t.start).Seconds(), fmt.Sprintf(format, args...))
}

// fail ends the scenario.
func (t *T) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// must ends the scenario if err is not nil.
func (t *T) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// figure records a measured value, rounded to milliseconds or thousandths, and says it. Of several under one name the
// largest, which is the worst, is kept.
func (t *T) figure(name string, value float64) {
	value = math.Round(value*1000) / 1000
	t.mu.Lock()
	t.figures[name] = max(value, t.figures[name])
	t.mu.Unlock()
	t.say("figure: %s = %.10g", name, value)
}

// figureOnce is figure for what is worst when it is least: of several under one name the first is kept.
func (t *T) figureOnce(name string, value float64) {
	t.mu.Lock()
	_, there := t.figures[name]
	t.mu.Unlock()
	if !there {
		t.figure(name, value)
	}
}

// eventually waits until check returns nil, at most for the time given, and returns how long it took.
func (t *T) eventually(within time.Duration, what string, check func() error) time.Duration {
	start := time.Now()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		err := check()
		took := time.Since(start)
		if err == nil {
			t.say("%s (%.2fs)", what, took.Seconds())
			return took
		}
		select {
		case <-every.C:
		case <-deadline.C:
			t.fail("not within %v: %s: %w", within, what, err)
		case <-t.ctx.Done():
			t.fail("%s: %w", what, context.Cause(t.ctx))
		}
	}
}

// hold lets time pass: the scenario is about what does not happen in it.
func (t *T) hold(d time.Duration, why string) {
	t.say("for %v: %s", d, why)
	t.pause(d, why)
}

// pause waits for d.
func (t *T) pause(d time.Duration, why string) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.fail("%s: %w", why, context.Cause(t.ctx))
	}
}
