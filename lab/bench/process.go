package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// clockTick is the unit of processor times in /proc: USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// findProcess returns the only process of that program (the base name of its file) that has all these arguments.
func findProcess(program string, args ...string) (int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	found := slices.DeleteFunc(all, func(p procfs.Proc) bool {
		argv, err := p.CmdLine()
		return err != nil || !isProgram(argv, program, args) // an error says that it has just ended
	})
	if len(found) != 1 {
		return 0, fmt.Errorf("%d processes of %s %s, want 1", len(found), program, strings.Join(args, " "))
	}
	return found[0].PID, nil
}

// isProgram checks a command line.
func isProgram(argv []string, program string, args []string) bool {
	return len(argv) > 0 && filepath.Base(argv[0]) == program &&
		!slices.ContainsFunc(args, func(a string) bool { return !slices.Contains(argv[1:], a) })
}

func memoryOf(pid int) (Memory, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, err
	}
	m, err := p.ProcSMapsRollup()
	if err == nil && m.Rss == 0 {
		err = errors.New("smaps_rollup has no line Rss")
	}
	return Memory{RSS: int64(m.Rss), Anonymous: int64(m.Anonymous)}, err
}

// peakOf returns the highest resident memory of a process, in bytes.
func peakOf(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	return int64(status.VmHWM), err
}

// processorTime returns what a process has used since its start, user and system.
func processorTime(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return time.Duration(stat.UTime+stat.STime) * clockTick, err
}
