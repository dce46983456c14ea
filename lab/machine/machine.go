// Package machine is one host of the lab. It is a process of ours as pid 1 in its own network, mount, pid, uts, ipc and, where
// containers run, cgroup namespaces, with a disk that outlives it. To kill that process is a power cut: the kernel ends
// everything else in the machine at once.
//
// The first process takes orders over a Unix socket on the machine's disk: start a program, signal one, list them. It never
// restarts a program: a lab must show that a program died, not hide it.
//
// Nothing in a machine can write to the host's files. Its root is read-only except for its own disk and memory file systems,
// and the kernel settings that a kubelet requires are the machine's own files.
package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Spec describes a machine.
type Spec struct {
	Name string
	// Disk is the machine's directory on the host. It survives power cuts.
	Disk string
	// Hosts is the content of the machine's /etc/hosts after the loopback line.
	Hosts string
	// Keep are directories of the host that the machine sees read-only at their own paths. It sees them even below directories
	// of which it has its own (/var/lib, /var/log, /run, /tmp).
	Keep []string
	// Cgroup is the machine's own cgroup, below the root of each hierarchy; empty means a machine without containers.
	Cgroup string
}

const (
	specFile   = "machine.json"
	socketFile = "init.sock"
	logFile    = "init.log"
)

// Socket returns the path on which the machine with this disk takes orders.
func Socket(disk string) string { return filepath.Join(disk, socketFile) }

// Machine is a running machine, seen from outside.
type Machine struct {
	Spec Spec
	// PID is the machine's first process, in the caller's pid namespace.
	PID  int
	exec *exec.Cmd
	gone chan struct{}
}

// initArg tells this program that it is a machine's first process; see Main.
const initArg = "machine-init"

// PowerOn starts the machine and returns when its first process takes orders. That process is the calling program again, whose
// main function must call Main.
func PowerOn(ctx context.Context, spec Spec) (*Machine, error) {
	m, err := powerOn(spec)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		if _, err = m.Processes(ctx); err == nil {
			return m, nil
		}
		select {
		case <-m.gone:
			return nil, fmt.Errorf("machine %s: did not boot: %s", spec.Name,
				lastLine(filepath.Join(spec.Disk, logFile)))
		case <-ctx.Done():
			m.PowerOff()
			return nil, fmt.Errorf("machine %s: does not take orders: %w", spec.Name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func powerOn(spec Spec) (*Machine, error) {
	if err := os.MkdirAll(spec.Disk, 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(Socket(spec.Disk)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	content, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(spec.Disk, specFile), content, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(spec.Disk, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/proc/self/exe", initArg, spec.Disk)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWIPC,
		Setsid: true,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	preferred(cmd.Process.Pid)
	m := &Machine{Spec: spec, PID: cmd.Process.Pid, exec: cmd, gone: make(chan struct{})}
	go func() {
		defer close(m.gone)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return m, nil
}

// preferred gives a session more of the processors than what runs beside a lab on its host, such as the builds of tests. The
// kernel may share processors in another way than by sessions; then it changes nothing. See sched(7), autogroups.
func preferred(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte("-10"), 0)
}

// PowerOff cuts the machine's power and returns when nothing in it runs any more.
func (m *Machine) PowerOff() {
	_ = m.exec.Process.Kill() // fails only if it is already gone
	<-m.gone
	if m.Spec.Cgroup != "" {
		removeCgroups(m.Spec.Cgroup)
	}
}

// Gone returns a channel that closes when the machine has lost its power.
func (m *Machine) Gone() <-chan struct{} { return m.gone }

// State is the state of a process.
type State string

// States of a process.
const (
	Running State = "running"
	Paused  State = "paused"
	Exited  State = "exited"
)

// Process is a program on a machine.
type Process struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"` // in the machine's pid namespace
	State State  `json:"state"`
	// End says how the program ended; empty while it runs.
	End string `json:"end,omitempty"`
}

// Command is a program to start.
type Command struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	// Log is the file to which the program's output is appended.
	Log string `json:"log"`
	// MustEnd makes Start wait until the program has ended. Start fails unless the program succeeds.
	MustEnd bool `json:"mustEnd,omitempty"`
	// Again starts the program again a second after it ended with exit status 1, as kubelet does.
	Again bool `json:"again,omitempty"`
}

// Start starts a program. It fails if one of that name is running.
func (m *Machine) Start(ctx context.Context, c Command) error {
	return m.order(ctx, "start", c, nil)
}

// signalOrder is what Signal and SignalProgram send.
type signalOrder struct {
	// Name of the program; empty for every process in the machine but the first.
	Name string `json:"name"`
	// Program, as for Find, replaces Name.
	Program string         `json:"program,omitempty"`
	Signal  syscall.Signal `json:"signal"`
}

// Signal sends a signal to a program or, if name is empty, to all processes of the machine except its first. After a
// SIGKILL it returns when the program is gone.
func (m *Machine) Signal(ctx context.Context, name string, s syscall.Signal) error {
	return m.order(ctx, "signal", signalOrder{Name: name, Signal: s}, nil)
}

// SignalProgram sends a signal to all processes that Find finds. It fails if there are none. After a SIGKILL it returns when
// they are gone.
func (m *Machine) SignalProgram(ctx context.Context, program string, s syscall.Signal) error {
	return m.order(ctx, "signal", signalOrder{Program: program, Signal: s}, nil)
}

// Find lists the machine's running processes of a program, by the base name of its file, no matter what started them. It
// includes processes in containers.
func (m *Machine) Find(ctx context.Context, program string) ([]Process, error) {
	var ps []Process
	err := m.order(ctx, "find", findOrder{program}, &ps)
	return ps, err
}

// findOrder is what Find sends.
type findOrder struct {
	Program string `json:"program"`
}

// Processes lists the started programs in the order of their start.
func (m *Machine) Processes(ctx context.Context) ([]Process, error) {
	var ps []Process
	err := m.order(ctx, "processes", struct{}{}, &ps)
	return ps, err
}

// orderTimeout bounds an order, with what it waits for.
const orderTimeout = time.Minute

func (m *Machine) order(ctx context.Context, verb string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.Spec.Name+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", Socket(m.Spec.Disk))
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("machine %s: %s: %w", m.Spec.Name, verb, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("machine %s: %s: %w", m.Spec.Name, verb, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("machine %s: %s", m.Spec.Name, bytes.TrimSpace(answer))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

func lastLine(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	content = bytes.TrimSpace(content)
	if i := bytes.LastIndexByte(content, '\n'); i >= 0 {
		content = content[i+1:]
	}
	return string(content)
}
