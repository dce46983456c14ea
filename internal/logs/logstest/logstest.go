// Package logstest runs programs as they are, and reads what they log as a collector of logs does.
//
// A package of a program has
//
//	func TestMain(m *testing.M) { logstest.Main(m, main) }
//
// and its tests start the program with Start or Ends. Both run the test's own binary, in which Main then calls main.
package logstest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asProgram in the environment has the binary of a test be the program.
const asProgram = "YURT_TEST_AS_PROGRAM"

// patience is how long a program may take on a machine that is busy with other tests.
const patience = 3 * time.Minute

// Main runs a package's tests, or main in a process that a test has started.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Entry is a line of a log in JSON.
type Entry map[string]any

// Message returns what the line says.
func (e Entry) Message() string {
	text, _ := e["msg"].(string)
	return text
}

// Level returns the level of a line, or -1 of an error.
func (e Entry) Level() int {
	v, ok := e["v"].(float64)
	if !ok {
		return -1
	}
	return int(v)
}

// Program is a running one.
type Program struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  bytes.Buffer
	said chan struct{} // closed when stderr has ended

	mu    sync.Mutex // guards what follows
	lines []string
	more  chan struct{} // closed at the next line
}

// Start starts the program with these arguments. It is killed when the test ends.
func Start(t testing.TB, args ...string) *Program {
	t.Helper()
	p := &Program{
		t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], args...),
		said: make(chan struct{}), more: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout = &p.out
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.said)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			p.add(lines.Text())
		}
		if err := lines.Err(); err != nil {
			t.Errorf("read what the program logs: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.said
		_ = p.cmd.Wait()
	})
	return p
}

func (p *Program) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	close(p.more)
	p.more = make(chan struct{})
}

// Until waits for a line that fits, and returns it.
func (p *Program) Until(what string, fits func(line string) bool) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		i, more := slices.IndexFunc(p.lines, fits), p.more
		var line string
		if i >= 0 {
			line = p.lines[i]
		}
		p.mu.Unlock()
		if i >= 0 {
			return line
		}
		select {
		case <-more:
		case <-p.said:
			p.t.Fatalf("the program ended without %s:\n%s", what, p.Log())
		case <-timeout:
			p.t.Fatalf("after %v there is no %s:\n%s", patience, what, p.Log())
		}
	}
}

// UntilSaid waits for a line with this text.
func (p *Program) UntilSaid(text string) string {
	p.t.Helper()
	return p.Until("a line with "+text, func(line string) bool { return strings.Contains(line, text) })
}

// Stop ends the program as a service manager does, and returns how it ended.
func (p *Program) Stop() error {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	return p.Wait()
}

// Wait returns how the program ended.
func (p *Program) Wait() error {
	p.t.Helper()
	select {
	case <-p.said:
	case <-time.After(patience):
		p.t.Fatalf("the program does not end:\n%s", p.Log())
	}
	return p.cmd.Wait()
}

// Log returns all that the program has logged by now.
func (p *Program) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// Out returns what the program has printed for a person. Call it after Wait or Stop.
func (p *Program) Out() string { return p.out.String() }

// Entries checks that all of a log is what a collector of Kubernetes' logs in JSON can read, and returns its lines.
func Entries(t testing.TB, log string) (all []Entry) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(log), "\n") {
		if line == "" {
			continue
		}
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%v in %q", err, line)
			continue
		}
		ts, _ := e["ts"].(float64)
		if at := time.UnixMilli(int64(ts)); time.Since(at).Abs() > 24*time.Hour {
			t.Errorf("its time is %v: %s", at, line)
		}
		if e.Message() == "" {
			t.Errorf("it has no message: %s", line)
		}
		all = append(all, e)
	}
	return all
}

// Highest returns the highest level of some lines.
func Highest(all []Entry) (level int) {
	for _, e := range all {
		level = max(level, e.Level())
	}
	return level
}

// Ends runs the program, which is to end with an error, and returns what it logs.
func Ends(t testing.TB, args ...string) string {
	t.Helper()
	p := Start(t, args...)
	if err := p.Wait(); err == nil {
		t.Errorf("with %v it ends well", args)
	}
	return p.Log()
}
