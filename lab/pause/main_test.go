package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// child starts a process that ends at once, and which nobody waits for yet.
func child(t *testing.T) (pid int) {
	t.Helper()
	path, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(path, []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Pid
}

// ended blocks until a child has ended, and leaves it to be collected. It is false if the child was collected already.
func ended(t *testing.T, pid int) bool {
	t.Helper()
	const byPID, exited, leave = 1, 0x4, 0x1000000 // of waitid(2); package syscall has no names for them
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, exited|leave, 0, 0)
		switch {
		case err == 0:
			return true
		case errors.Is(err, syscall.ECHILD):
			return false
		case !errors.Is(err, syscall.EINTR):
			t.Fatal(err)
		}
	}
}

func TestReapCollectsAllThatEnded(t *testing.T) {
	var pids []int
	for range 5 {
		pids = append(pids, child(t))
	}
	for _, pid := range pids {
		if !ended(t, pid) {
			t.Fatalf("process %d was collected by somebody else", pid)
		}
	}
	reap()
	for _, pid := range pids {
		if _, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("process %d was left: %v", pid, err)
		}
	}
}

// TestEndsWhenTold runs main and sends this process the signal that a container runtime sends.
func TestEndsWhenTold(t *testing.T) {
	done := make(chan struct{})
	go func() {
		main()
		close(done)
	}()
	// Before main has asked for signals, this one would end the test. That it collects children shows that it has.
	for pid := child(t); ended(t, pid); pid = child(t) {
		if _, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err != nil {
			break
		}
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-done
}
