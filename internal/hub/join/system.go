package join

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/hub/bypass"
)

// System is what Join and Reset need of a running node besides its files.
type System interface {
	// Available reports whether systemd can be told anything.
	Available() bool
	// Control tells systemd something, in systemctl's words, and returns when it is done.
	Control(ctx context.Context, args ...string) error
	// Check has the program check the node, and returns what that says; the error is ErrNotWell if it is not content.
	Check(ctx context.Context, binary, stdin string, args ...string) (string, error)
	// Sync brings all files to the disk.
	Sync()
	// Programs returns the programs of the node's Pods.
	Programs() []bypass.Program
	// End ends one: it is asked to, and if that takes long, made to.
	End(ctx context.Context, pid int) error
}

// ErrNotWell says that a check has found failures.
var ErrNotWell = errors.New("yurthub check found failures")

// Machine is the machine that runs this.
type Machine struct{}

// Available implements System.
func (Machine) Available() bool { _, err := exec.LookPath("systemctl"); return err == nil }

// Control implements System.
func (Machine) Control(ctx context.Context, args ...string) error {
	if out, err := command(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Check implements System.
func (Machine) Check(ctx context.Context, binary, stdin string, args ...string) (string, error) {
	cmd := command(ctx, binary, append([]string{"check"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		err = ErrNotWell
	}
	return string(out), err
}

// Output runs a program and returns what it prints. A check that has found failures has not failed.
func (Machine) Output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, outputFor, fmt.Errorf("%s has not ended within %v", program, outputFor))
	defer cancel()
	out, err := command(ctx, program, args...).Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &exit) && exit.Exited() && len(out) > 0 && args[0] == "check":
		err = nil
	case errors.As(err, &exit):
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// outputFor is how long a program may take; a check ends within half of it.
const outputFor = 30 * time.Second

// Restarts returns how often systemd has started the hub again by itself since it was told to; zero if it does not say.
func (Machine) Restarts(ctx context.Context) int {
	n, err := strconv.Atoi(ofHub(ctx, "NRestarts"))
	if err != nil {
		return 0
	}
	return n
}

// Begun implements UpgradeSystem.
func (Machine) Begun(ctx context.Context) string { return ofHub(ctx, "InvocationID") }

// ofHub returns a property of the hub's unit; empty if systemd does not say.
func ofHub(ctx context.Context, property string) string {
	out, err := command(ctx, "systemctl", "show", "--property="+property, "--value", "yurthub.service").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// Sync implements System.
func (Machine) Sync() { syscall.Sync() }

// Programs implements System.
func (Machine) Programs() []bypass.Program { return bypass.InPods("/proc") }

// endFor is how long a program may take to end by itself: some write down what they have first.
const endFor = 10 * time.Second

// End implements System. A program that has ended already is no error.
func (Machine) End(ctx context.Context, pid int) error {
	// By a handle, which stays that process's when its number is another's.
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return fmt.Errorf("process %d: %w", pid, err)
		}
		ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for until := time.Now().Add(endFor); time.Now().Before(until) && ctx.Err() == nil; {
			if n, _ := unix.Poll(ended, 100); n > 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("process %d does not end", pid)
}
