package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// find lists the processes of a program from proc, a directory such as /proc.
func find(proc, program string) ([]Process, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	found := []Process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil {
			continue // it has just ended
		}
		argv0, _, _ := bytes.Cut(line, []byte{0})
		if filepath.Base(string(argv0)) != program {
			continue
		}
		if state := stateOf(proc, pid); state != Exited {
			found = append(found, Process{Name: program, PID: pid, State: state})
		}
	}
	return found, nil
}

// stateOf reads a process's state from /proc/PID/stat: "PID (NAME) STATE …". The name may contain anything.
func stateOf(proc string, pid int) State {
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Exited
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	switch {
	case len(fields) == 0 || fields[0] == "Z" || fields[0] == "X":
		return Exited
	case fields[0] == "T":
		return Paused
	}
	return Running
}

// goneTimeout is how long a killed process may take to vanish: the kernel frees its memory first.
const goneTimeout = 10 * time.Second

// signalProgram sends a signal to every process of a program, and waits until those that it kills have ended.
func signalProgram(program string, s syscall.Signal) error {
	found, err := find("/proc", program)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no %s is running", program)
	}
	for _, p := range found {
		if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	if s != syscall.SIGKILL {
		return nil
	}
	deadline := time.Now().Add(goneTimeout)
	for _, p := range found {
		for stateOf("/proc", p.PID) != Exited {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s, process %d, was killed but still exists after %v", program, p.PID, goneTimeout)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}
