package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/lab/e2e/kit"
)

// protocols are the environments for kubectl's two ways to get a stream.
var protocols = map[string][]string{
	"websocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"spdy":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

const (
	commandTimeout = 30 * time.Second
	// terminalRows and terminalColumns are the size of kubectl's terminals.
	terminalRows, terminalColumns = 33, 77
)

// place is the server that is asked, and the kubectl that asks: ours, or that of the minor version before.
type place struct {
	via   string
	older bool
}

func (s place) String() string {
	if s.older {
		return s.via + " with the older kubectl"
	}
	return s.via
}

// kubectlRun is a run of kubectl.
type kubectlRun struct {
	place
	protocol string
	args     []string
	stdin    string
}

// kubectlFor returns the command of a run.
func kubectlFor(ctx context.Context, t *kit.T, r kubectlRun) (*exec.Cmd, error) {
	of := t.Lab.Kubectl
	if r.older {
		of = t.Lab.KubectlOlder
	}
	cmd, err := of(ctx, r.via, r.args)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, protocols[r.protocol]...)
	return cmd, nil
}

// kubectlSays runs kubectl to its end. It returns its whole output, and an error unless it succeeded.
func kubectlSays(t *kit.T, r kubectlRun) (string, error) {
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	cmd, err := kubectlFor(ctx, t, r)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(r.stdin)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v: %w", commandTimeout, context.Cause(ctx))
	}
	return string(out), err
}

// running is a program that keeps running: a followed log, a port, a terminal.
type running struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	// terminal is the program's terminal; nil means none.
	terminal *os.File
	ended    chan error // receives how it ended

	mu  sync.Mutex
	out bytes.Buffer
}

// Write takes in the program's output.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *running) printed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// begin starts a program, on a new terminal if wanted.
func begin(t *kit.T, cmd *exec.Cmd, terminal bool) *running {
	r := &running{cmd: cmd, ended: make(chan error, 1)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !terminal {
		var err error
		r.input, err = cmd.StdinPipe()
		t.Must(err)
		cmd.Stdout, cmd.Stderr = r, r
		t.Must(cmd.Start())
		go func() { r.ended <- cmd.Wait() }()
		return r
	}
	master, slave, err := openTerminal()
	t.Must(err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true // of file 0
	r.input, r.terminal = master, master
	err = cmd.Start()
	t.Must(errors.Join(err, slave.Close()))
	read := make(chan struct{})
	go func() {
		_, _ = io.Copy(r, master) // ends with an error when nobody has the terminal any more
		close(read)
	}()
	go func() {
		err := cmd.Wait()
		<-read
		r.ended <- errors.Join(err, master.Close())
	}()
	return r
}

// end kills a program and everything that it started, and returns how it ended.
func (r *running) end() error {
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	return <-r.ended
}

// says waits until a program has printed something.
func says(t *kit.T, r *running, what, want string) {
	t.Eventually(commandTimeout, what+" prints "+want, func() error {
		if out := r.printed(); !strings.Contains(out, want) {
			return fmt.Errorf("it prints %q", out)
		}
		return nil
	})
}

// sized expects that the shell at the other end knows the size of the terminal here, also after a change.
func sized(t *kit.T, what string, shell *running) {
	for _, size := range []unix.Winsize{{Row: terminalRows, Col: terminalColumns}, {Row: 20, Col: 100}} {
		t.Must(unix.IoctlSetWinsize(int(shell.terminal.Fd()), unix.TIOCSWINSZ, &size))
		_, err := fmt.Fprintf(shell.input,
			"until [ \"$(stty size)\" = '%[1]d %[2]d' ]; do sleep 0.1; done; echo it is $(stty size)\n", size.Row, size.Col)
		t.Must(err)
		says(t, shell, what, fmt.Sprintf("it is %d %d", size.Row, size.Col))
	}
}

// openTerminal returns the two ends of a pseudoterminal.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: terminalRows, Col: terminalColumns})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// What differs between two looks at the same thing: ages, times, the server's own revision.
var (
	clockTimes  = regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} [\d:]{8} [+-]\d{4}`)
	wireTimes   = regexp.MustCompile(`"?\d{4}-\d\d-\d\dT[\d:]{8}(\.\d+)?Z"?`)
	ages        = regexp.MustCompile(`(\d+[ydhms])+( ago)?( \(x\d+ over (\d+[ydhms])+\))?`)
	revisions   = regexp.MustCompile(`(?m)^ *resourceVersion: .*\n`)
	blanks      = regexp.MustCompile(`[ \t]+`)
	placeOfTime = "TIME"
)

// normal returns kubectl's output without what differs between two looks; if sorted is set, with sorted lines.
func normal(out string, sorted bool) string {
	out = revisions.ReplaceAllString(out, "")
	for _, times := range []*regexp.Regexp{clockTimes, wireTimes, ages} {
		out = times.ReplaceAllString(out, placeOfTime)
	}
	lines := strings.Split(strings.TrimSpace(blanks.ReplaceAllString(out, " ")), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if sorted {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

// firstLine names the first line in which two outputs differ.
func firstLine(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return fmt.Sprintf("line %d is missing: %q", i+1, b[i])
		case i >= len(b):
			return fmt.Sprintf("line %d is too many: %q", i+1, a[i])
		case a[i] != b[i]:
			return fmt.Sprintf("line %d is %q, want %q", i+1, a[i], b[i])
		}
	}
	return "nothing differs"
}
