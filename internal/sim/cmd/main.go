// Command cmd explores: it lets histories of a simulated pool happen, by consecutive seeds, until its time is over. For one
// that breaks a promise it prints the smallest that still does, as a table for a test, and its status is then 1.
//
//	go run ./internal/sim/cmd --for 1h --seed 1000 --coordinators 3 --weights servers
//
// A bubble of testing/synctest needs a test, so this runs TestSeeds of internal/sim/world, built once, in processes: a simulation
// takes one processor each.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// batch is how many histories a process lets happen: what a bubble leaves behind ends with it.
const batch = 20

func main() {
	var e explorer
	pflag.DurationVar(&e.lasts, "for", time.Hour, "how long to explore")
	pflag.Uint64Var(&e.next, "seed", 0, "the first seed")
	pflag.IntVar(&e.nodes, "nodes", 5, "nodes of the pool, 3 to 8")
	pflag.IntVar(&e.coordinators, "coordinators", 1, "coordinators of the pool, 0 to 3")
	pflag.StringVar(&e.weights, "weights", "all", "what happens most: links, servers, machines or all")
	pflag.IntVar(&e.processes, "procs", 2, "simulations at a time")
	pflag.IntVar(&e.shrink, "shrink", 60, "how often a history that breaks may be tried again to make it smaller")
	pflag.Parse()
	if err := e.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// explorer hands out seeds.
type explorer struct {
	lasts                                  time.Duration
	nodes, coordinators, processes, shrink int
	weights                                string

	mu       sync.Mutex
	next     uint64
	lived    int // histories
	breaches int
	speed    int // simulated seconds for one of a processor, added up
	spent    time.Duration
}

var errBroken = errors.New("promises are broken: see above")

func (e *explorer) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the system's own place for such files
	binary := filepath.Join(dir, "world.test")
	build := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-o", binary, "yurtcoordinator/internal/sim/world")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the simulation: %w", err)
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

var seedLine = regexp.MustCompile(`seed \d+: (\d+) simulated seconds`) // a constant

// explore lets a batch happen. A breach is not an error; a simulation that ends otherwise is.
func (e *explorer) explore(ctx context.Context, binary, dir string) error {
	e.mu.Lock()
	from := e.next
	e.next += batch
	e.mu.Unlock()
	c := exec.CommandContext(ctx, binary, "-test.run=^TestSeeds$", "-test.v", "-test.timeout=0")
	c.Dir = dir
	c.Env = append(os.Environ(), "SIM_FROM="+strconv.FormatUint(from, 10), "SIM_COUNT="+strconv.Itoa(batch),
		"SIM_NODES="+strconv.Itoa(e.nodes), "SIM_COORDINATORS="+strconv.Itoa(e.coordinators), "SIM_WEIGHTS="+e.weights,
		"SIM_SHRINK="+strconv.Itoa(e.shrink))
	out, err := c.CombinedOutput()
	seeds := seedLine.FindAllSubmatch(out, -1)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range seeds {
		n, _ := strconv.Atoi(string(s[1])) // the expression has digits only
		e.speed += n
	}
	e.lived += len(seeds)
	if c.ProcessState != nil {
		e.spent += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	broken := bytes.Count(out, []byte("BREACH of seed"))
	e.breaches += broken
	if broken > 0 {
		fmt.Println(strings.TrimSpace(told(string(out))))
	}
	if err != nil && (broken == 0 || len(seeds) != batch) {
		return fmt.Errorf("seeds %d to %d: %w\n%s", from, from+batch-1, err, out)
	}
	return nil
}

// told returns the breaches with their tables.
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
