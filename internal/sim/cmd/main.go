// Command cmd looks for broken promises: until its time is over, it simulates random histories of a pool, with consecutive seeds.
// If a history breaks a promise, cmd makes the history as small as it can, and prints it as a table for a test. If any history
// broke a promise, the exit status is 1.
//
//	go run ./internal/sim/cmd --for 1h --seed 1000 --coordinators 3 --weights servers
//
// Bubbles of testing/synctest exist only in tests. So cmd builds the tests of internal/sim/world once, and runs TestSeeds in
// several processes. Each process uses one processor.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// batch is how many histories one process lets happen. What a bubble leaves behind ends with its process.
const batch = 20

func main() {
	var e explorer
	pflag.DurationVar(&e.lasts, "for", time.Hour, "how long to explore")
	pflag.Uint64Var(&e.next, "seed", 0, "the first seed")
	pflag.IntVar(&e.nodes, "nodes", 5, "nodes of the pool, 3 to 8")
	pflag.IntVar(&e.coordinators, "coordinators", 1, "coordinators of the pool, 0 to 3")
	pflag.StringVar(&e.weights, "weights", "all", "what happens most: links, servers, machines, all, or data (programs read)")
	pflag.IntVar(&e.processes, "procs", 2, "simulations at a time")
	pflag.IntVar(&e.shrink, "shrink", 60, "how often a history that breaks may be tried again to make it smaller")
	planted := pflag.Bool("planted", false, "look for planted faults instead, to see whether the simulation can find them")
	only := pflag.String("only", "", "with --planted: faults whose names contain this")
	pflag.Parse()
	run := e.run
	if *planted {
		run = func(ctx context.Context) error { return e.plant(ctx, *only) }
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// explorer hands out seeds to processes, and sums up what they find.
type explorer struct {
	lasts                                  time.Duration
	nodes, coordinators, processes, shrink int
	weights                                string

	mu       sync.Mutex
	next     uint64
	lived    int // histories
	breaches int
	speed    int // simulated seconds in one second of a processor, added up over all histories
	spent    time.Duration
}

var errBroken = errors.New("promises are broken: see above")

func (e *explorer) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the system's own place for such files
	binary, err := build(ctx, dir)
	if err != nil {
		return err
	}
	first, end := e.next, time.Now().Add(e.lasts)
	var running sync.WaitGroup
	errs := make([]error, e.processes)
	for i := range e.processes {
		running.Go(func() {
			for time.Now().Before(end) && errs[i] == nil {
				errs[i] = e.explore(ctx, binary, dir)
			}
		})
	}
	running.Wait()
	fmt.Printf("%d histories from seed %d on, %d broken; %v of processor time, %d simulated seconds for one of a processor\n",
		e.lived, first, e.breaches, e.spent.Round(time.Second), e.speed/max(e.lived, 1))
	if err := errors.Join(errs...); err != nil || e.breaches == 0 {
		return err
	}
	return errBroken
}

// build builds the simulation into dir, with additional flags of go test.
func build(ctx context.Context, dir string, flags ...string) (binary string, err error) {
	binary = filepath.Join(dir, "world.test")
	args := slices.Concat([]string{"test", "-vet=off", "-c", "-o", binary}, flags, []string{"yurtcoordinator/internal/sim/world"})
	build := exec.CommandContext(ctx, "go", args...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the simulation: %w", err)
	}
	return binary, nil
}

var seedLine = regexp.MustCompile(`seed \d+: (\d+) simulated seconds`) // a constant

// explore simulates the next batch of histories, and counts those that break a promise. It returns an error only if a simulation
// fails in another way.
func (e *explorer) explore(ctx context.Context, binary, dir string) error {
	e.mu.Lock()
	from := e.next
	e.next += batch
	e.mu.Unlock()
	out, speeds, spent, err := live(ctx, binary, dir, from, batch, "", "SIM_NODES="+strconv.Itoa(e.nodes),
		"SIM_COORDINATORS="+strconv.Itoa(e.coordinators), "SIM_WEIGHTS="+e.weights, "SIM_SHRINK="+strconv.Itoa(e.shrink))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range speeds {
		e.speed += n
	}
	e.lived += len(speeds)
	e.spent += spent
	broken := strings.Count(out, "BREACH of seed")
	e.breaches += broken
	if broken > 0 {
		fmt.Println(strings.TrimSpace(told(out)))
	}
	if err != nil && (broken == 0 || len(speeds) != batch) {
		return fmt.Errorf("seeds %d to %d: %w\n%s", from, from+batch-1, err, out)
	}
	return nil
}

// live simulates count histories in one process with the environment env. The parameter from is the first seed; the others
// follow. flag is an additional flag of go test; empty means none. The result speeds has, for each history, the seconds that were
// simulated in one second of a processor. The result spent is the processor time of all histories.
func live(
	ctx context.Context, binary, dir string, from uint64, count int, flag string, env ...string,
) (out string, speeds []int, spent time.Duration, err error) {
	c := exec.CommandContext(ctx, binary, "-test.run=^TestSeeds$", "-test.v", "-test.timeout=0")
	if flag != "" {
		c.Args = append(c.Args, flag)
	}
	c.Dir = dir
	// On a busy machine a fifth of a simulation's time was preemption, which goroutines that wait for each other don't need.
	c.Env = slices.Concat(os.Environ(), []string{
		"GODEBUG=asyncpreemptoff=1", "SIM_FROM=" + strconv.FormatUint(from, 10), "SIM_COUNT=" + strconv.Itoa(count),
	}, env)
	said, err := c.CombinedOutput()
	for _, s := range seedLine.FindAllSubmatch(said, -1) {
		n, _ := strconv.Atoi(string(s[1])) // the expression has digits only
		speeds = append(speeds, n)
	}
	if c.ProcessState != nil {
		spent = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	return string(said), speeds, spent, err
}

// told returns those lines of the output that report breaches, with the tables of their histories.
func told(out string) string {
	var b strings.Builder
	keep := false
	for line := range strings.Lines(out) {
		if strings.Contains(line, "BREACH of seed") {
			keep = true
		} else if !strings.HasPrefix(line, "        ") {
			keep = false
		}
		if keep {
			b.WriteString(line)
		}
	}
	return b.String()
}
