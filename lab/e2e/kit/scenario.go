package kit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/wire"
)

// Scenario is one end-to-end script.
type Scenario struct {
	Name string
	// Doc says in one line what the scenario does and what must be seen.
	Doc string
	// Tier says when it runs.
	Tier Tier
	// Lab is the scenario's lab; Run fills in the name and, if empty, the kind of kubelet.
	Lab lab.Config
	// Pages are what the scenario runs of our pages. Run must run each command of them.
	Pages []Reading
	// Run is the script: it ends at the first assertion that fails.
	Run func(t *T)
}

// Tier says when a scenario runs, and for whom.
type Tier string

const (
	// Promise has the scenarios about what the README, the figures and the threat model say, except those in Core. They run
	// before a release, and before a change of what they show lands.
	Promise Tier = ""
	// Core is in `make test`: the few without which no change lands.
	Core Tier = "core"
	// Field has the scenarios with what others made: kubeadm, Helm, OpenYurt, proxies, registries, browsers, and those that run
	// the commands of the pages. They run before a release.
	Field Tier = "field"
)

// String is the name of the tier.
func (t Tier) String() string { return cmp.Or(string(t), "promise") }

// LabName returns a name for the scenario's lab: a lab's name has no dots.
func (s Scenario) LabName(prefix string) string {
	return prefix + "-" + strings.ReplaceAll(s.Name, ".", "-")
}

// Options say how to run a scenario.
type Options struct {
	LabName string
	Out     io.Writer
	// KeepFailed leaves the lab of a failed scenario up, so that somebody can look at it.
	KeepFailed bool
	// Start boots a lab. If that fails, it leaves nothing behind.
	Start func(context.Context, lab.Config) (*lab.Client, error)
}

// Result is how a scenario ended.
type Result struct {
	Scenario string             `json:"scenario"`
	Passed   bool               `json:"passed"`
	Error    string             `json:"error,omitempty"`
	Figures  map[string]float64 `json:"figures"`
}

// Run boots a lab, runs a scenario in it and ends the lab, whatever happens.
func Run(ctx context.Context, s Scenario, o Options) Result {
	t := &T{scenario: s, out: o.Out, Start: time.Now(), figures: map[string]float64{}}
	err := t.boot(ctx, o)
	if err == nil {
		err = errors.Join(t.Protect(func(t *T) { hubsFound(t); s.Run(t); t.Must(t.unread()) }), t.Protect(bytesCarried),
			t.Protect(noCrash))
		t.stop(errors.New("the scenario has ended"))
		t.Background.Wait()
	}
	switch {
	case t.Lab == nil: // it did not boot, and is down again; or somebody else's lab of that name is up
	case err != nil && o.KeepFailed:
		t.Say("the lab is left up; look around with --name %s, then: yurtlab down --name %s", o.LabName, o.LabName)
	default:
		err = errors.Join(err, lab.Down(context.WithoutCancel(ctx), o.LabName)) // also if the caller has given up
	}
	r := Result{Scenario: s.Name, Passed: err == nil, Figures: t.figures}
	if err != nil {
		r.Error = err.Error()
		t.Say("FAILED: %v", err)
	} else {
		t.Say("passed")
	}
	return r
}

// hubsFound waits, in an installed lab, until every hub has found its pool's coordinator. A hub that started before the
// coordinator looks again within 30 s.
func hubsFound(t *T) {
	if !t.Config.Installed || t.Config.NoCoordinator || t.Config.Bare {
		return
	}
	t.Eventually(60*time.Second, "every hub has found the coordinator", func() error {
		for name, hub := range t.Pool.Hubs() {
			if hub.Role == RolePending {
				return fmt.Errorf("%s is %s", name, hub.Role)
			}
		}
		return nil
	})
}

// crashes are what a broken Go program writes, whatever the scenario is about.
var crashes = []string{"WARNING: DATA RACE", "panic: ", "fatal error: "}

// noCrash searches the logs of our own programs for the marks of a crash.
func noCrash(t *T) {
	logs, err := t.Lab.Logs()
	t.Must(err)
	for _, path := range logs {
		content, err := os.ReadFile(path)
		t.Must(err)
		for _, mark := range crashes {
			if i := bytes.Index(content, []byte(mark)); i >= 0 {
				t.Fail("%s: %s", path, content[i:min(len(content), i+2000)])
			}
		}
	}
}

// bytesCarried records what the WAN links of all nodes carried since the boot.
func bytesCarried(t *T) {
	all, err := t.Lab.Traffic(t.Ctx, false)
	t.Must(err)
	var sum wire.Bytes
	for _, b := range all {
		sum = sum.Add(b)
	}
	t.Figure("wan_bytes_up", float64(sum.Up))
	t.Figure("wan_bytes_down", float64(sum.Down))
}
