package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc: USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// findProcess returns the only process of that program (the base name of its file) that has all these arguments.
func findProcess(program string, args ...string) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // it has just ended
		}
		if isProgram(string(line), program, args) {
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%d processes of %s %s, want 1", len(found), program, strings.Join(args, " "))
	}
	return found[0], nil
}

// isProgram checks a /proc/PID/cmdline.
func isProgram(cmdline, program string, args []string) bool {
	argv := strings.Split(strings.TrimSuffix(cmdline, "\x00"), "\x00")
	if filepath.Base(argv[0]) != program {
		return false
	}
	for _, a := range args {
		if !slices.Contains(argv[1:], a) {
			return false
		}
	}
	return true
}

func memoryOf(pid int) (Memory, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, err
	}
	return parseRollup(string(rollup))
}

// parseRollup reads the lines "Rss: N kB" and "Anonymous: N kB".
func parseRollup(rollup string) (Memory, error) {
	var m Memory
	for line := range strings.Lines(rollup) {
		name, rest, _ := strings.Cut(line, ":")
		into := map[string]*int64{"Rss": &m.RSS, "Anonymous": &m.Anonymous}[name]
		if into == nil {
			continue
		}
		kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("smaps_rollup: %s: %w", strings.TrimSpace(line), err)
		}
		*into = kB << 10
	}
	if m.RSS == 0 {
		return Memory{}, fmt.Errorf("smaps_rollup has no line Rss")
	}
	return m, nil
}

// peakOf returns the highest resident memory of a process, in bytes.
func peakOf(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parsePeak(string(status))
}

// parsePeak reads the line "VmHWM: N kB".
func parsePeak(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/PID/status: %s: %w", strings.TrimSpace(line), err)
			}
			return kB << 10, nil
		}
	}
	return 0, errors.New("/proc/PID/status has no line VmHWM")
}

func processorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(stat))
}

// parseStat adds user and system time, fields 14 and 15. Field 2, the name, may contain anything and ends at the last
// ")".
func parseStat(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields after the name, want 13 and more", len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
