package cloudscale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab/bench"
)

// stopTimeout is how long a program may take to end by itself.
const stopTimeout = 15 * time.Second

// process is a program that is measured or needed.
type process struct {
	name, log string
	cmd       *exec.Cmd
	ended     chan struct{} // closed when the program has ended
	err       error         // how it ended; read it only after ended is closed
}

// startProcess starts a program that ends with this process, however that ends.
func startProcess(dir, name string, argv ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process, which stop waits for
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

func (p *process) usage() (bench.Usage, error) {
	u, err := bench.UsageOf(p.cmd.Process.Pid)
	if err != nil {
		return u, fmt.Errorf("%s: %w", p.name, err)
	}
	return u, nil
}

// stop ends the program, and returns when it has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// died returns why the program has ended, with its last output; nil while it runs.
func (p *process) died() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	return fmt.Errorf("%s ended: %w: %s", p.name, errors.Join(p.err, errors.New("unexpected end")), lastWords(p.log))
}

func lastWords(path string) string {
	const most = 2 << 10
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content[max(0, len(content)-most):]))
}

// eventually calls check until it returns nil, for at most within.
func eventually(ctx context.Context, what string, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if over := run.Pause(ctx, 100*time.Millisecond); over != nil {
			return fmt.Errorf("%s: %w: %w", what, over, err)
		}
	}
}
