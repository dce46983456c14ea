package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A process is found by its program, whatever it is called and whoever started it, unless it has ended.
func TestFind(t *testing.T) {
	proc := t.TempDir()
	for pid, said := range map[int]struct{ cmdline, stat string }{
		1:  {"/sbin/init\x00", "1 (init) S 0"},
		20: {"/usr/local/bin/yurt-coordinator\x00--node-name=n1\x00", "20 (yurt) S 1"},
		21: {"yurt-coordinator\x00", "21 (a) b) T 1"}, // a name may have anything in it
		22: {"/usr/local/bin/yurt-coordinator\x00", "22 (yurt) Z 1"},
		23: {"/bin/sh\x00/usr/local/bin/yurt-coordinator\x00", "23 (sh) S 1"},
		24: {"", "24 (kthread) S 1"},
		25: {"/usr/local/bin/yurt-coordinator-2\x00", "25 (x) S 1"},
	} {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"cmdline": said.cmdline, "stat": said.stat} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(proc, "sys"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := find(proc, "yurt-coordinator")
	slices.SortFunc(got, func(a, b Process) int { return a.PID - b.PID })
	want := []Process{{Name: "yurt-coordinator", PID: 20, State: Running}, {Name: "yurt-coordinator", PID: 21, State: Paused}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := find(filepath.Join(proc, "nothing"), "x"); err == nil {
		t.Errorf("without /proc: %v, want an error", got)
	}
}

// What SIGKILL is sent to is gone when the call returns.
func TestSignalProgram(t *testing.T) {
	// A name that no other process has.
	program := fmt.Sprintf("lab-%d-sleep", os.Getpid())
	path := filepath.Join(t.TempDir(), program)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // gone already is as good
	waitForName(t, cmd.Process.Pid)
	if err := signalProgram(program, syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if err := signalProgram(program, syscall.SIGKILL); err != nil { // ends what is stopped, too
		t.Error(err)
	}
	if found, err := find("/proc", program); err != nil || len(found) != 0 {
		t.Errorf("after SIGKILL: %+v, %v", found, err)
	}
	if err := signalProgram(program, syscall.SIGKILL); err == nil {
		t.Error("a program that does not run can be killed")
	}
}

// waitForName waits until a process that has just been started says what it is called: exec.Cmd.Start returns when the
// kernel has closed what the new program does not inherit, a moment before it has put down the program's arguments.
func waitForName(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && len(line) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d has no name yet: %q, %v", pid, line, err)
		}
		runtime.Gosched()
	}
}
