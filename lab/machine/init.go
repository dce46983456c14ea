package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Main runs a machine's first process, if the calling program was started as one; then it never returns. A program that calls
// PowerOn must call Main first.
func Main() {
	if len(os.Args) < 3 || (os.Args[1] != initArg && os.Args[1] != bootedArg) {
		return
	}
	err := boot(os.Args[1], os.Args[2])
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// bootedArg marks the second start of the first process, inside its own cgroup namespace.
const bootedArg = "machine-booted"

func boot(stage, disk string) error {
	content, err := os.ReadFile(filepath.Join(disk, specFile))
	if err != nil {
		return err
	}
	var spec Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		return fmt.Errorf("%s: %w", specFile, err)
	}
	if stage == initArg && spec.Cgroup != "" {
		// A cgroup namespace belongs to a thread; a new exec of this program gives it to the whole process.
		runtime.LockOSThread()
		if err := enterCgroups(spec.Cgroup); err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
		return syscall.Exec("/proc/self/exe", []string{os.Args[0], bootedArg, disk}, os.Environ())
	}
	if err := furnish(spec); err != nil {
		return err
	}
	return serve(spec)
}

// first is pid 1: it starts programs and reaps everything that ends in the machine.
type first struct {
	mu       sync.Mutex
	programs []*program
}

type program struct {
	Process
	command Command
	ended   chan struct{}
}

func serve(spec Spec) error {
	f := &first{}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			f.reap()
		}
	}()

	l, err := net.Listen("unix", Socket(spec.Disk))
	if err != nil {
		return err
	}
	return f.server().Serve(l)
}

// server takes orders. It waits for an order as long as the sender waits for the answer: where hundreds of machines start at
// once, a sender may not get to write within seconds of its connection.
func (f *first) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /start", handle(f.start))
	mux.HandleFunc("POST /signal", handle(f.signal))
	mux.HandleFunc("POST /find", handle(func(o findOrder) ([]Process, error) { return find("/proc", o.Program) }))
	mux.HandleFunc("POST /processes", handle(func(struct{}) ([]Process, error) { return f.list(), nil }))
	return &http.Server{Handler: mux, ReadHeaderTimeout: orderTimeout}
}

// handle turns a function of JSON values into an HTTP handler.
func handle[In, Out any](f func(In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := f(in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_ = json.NewEncoder(w).Encode(out) // on failure the caller is gone
	}
}

func (f *first) start(c Command) (struct{}, error) {
	p, err := f.launch(c)
	if err != nil || !c.MustEnd {
		return struct{}{}, err
	}
	<-p.ended
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.End != "exit status 0" {
		return struct{}{}, fmt.Errorf("%s: %s: %s", c.Name, p.End, lastLine(c.Log))
	}
	return struct{}{}, nil
}

func (f *first) launch(c Command) (*program, error) {
	path, err := exec.LookPath(c.Argv[0])
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	// The lock is held during the start, so that the reaper never meets a child that is not yet in the list.
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, old := range f.programs {
		if old.Name != c.Name {
			continue
		}
		if old.State != Exited {
			return nil, fmt.Errorf("%s is already %s", c.Name, old.State)
		}
		f.programs = append(f.programs[:i], f.programs[i+1:]...)
		break
	}
	child, err := os.StartProcess(path, c.Argv, &os.ProcAttr{
		Dir:   "/",
		Env:   append(os.Environ(), c.Env...),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, err
	}
	p := &program{
		Process: Process{Name: c.Name, PID: child.Pid, State: Running}, command: c, ended: make(chan struct{}),
	}
	_ = child.Release() // the reaper waits for it
	f.programs = append(f.programs, p)
	return p, nil
}

func (f *first) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		f.mu.Lock()
		for _, p := range f.programs {
			if p.PID == pid && p.State != Exited {
				p.State, p.End = Exited, describe(status)
				close(p.ended)
				if c := p.command; c.startsAgain(status) {
					time.AfterFunc(time.Second, func() { _, _ = f.launch(c) }) // unless somebody has started it
				}
			}
		}
		f.mu.Unlock()
	}
}

// startsAgain reports whether a program that has ended so is started again.
func (c Command) startsAgain(s syscall.WaitStatus) bool { return c.Again && s.ExitStatus() == 1 }

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal: " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

func (f *first) signal(o signalOrder) (struct{}, error) {
	if o.Program != "" {
		return struct{}{}, signalProgram(o.Program, o.Signal)
	}
	if o.Name == "" {
		if err := syscall.Kill(-1, o.Signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return struct{}{}, err
		}
		f.noteSignal("", o.Signal)
		return struct{}{}, nil
	}
	p, err := f.running(o.Name)
	if err != nil {
		return struct{}{}, err
	}
	if err := syscall.Kill(p.PID, o.Signal); err != nil {
		return struct{}{}, fmt.Errorf("%s: %w", o.Name, err)
	}
	f.noteSignal(o.Name, o.Signal)
	if o.Signal == syscall.SIGKILL {
		<-p.ended
	}
	return struct{}{}, nil
}

func (f *first) running(name string) (*program, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.programs {
		if p.Name == name && p.State != Exited {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s is not running", name)
}

// noteSignal records a signal's effect on a program's state; an empty name means all.
func (f *first) noteSignal(name string, s syscall.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.programs {
		if p.State == Exited || (name != "" && p.Name != name) {
			continue
		}
		switch s {
		case unix.SIGSTOP:
			p.State = Paused
		case unix.SIGCONT:
			p.State = Running
		}
	}
}

func (f *first) list() []Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	ps := make([]Process, len(f.programs))
	for i, p := range f.programs {
		ps[i] = p.Process
	}
	return ps
}
