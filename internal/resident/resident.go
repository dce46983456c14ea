// Package resident gives back the memory of those pages of a program's own file that it no longer uses.
//
// Most of our programs is code of Kubernetes' libraries, and most of that runs only at the start, to build tables. Such
// a page stays mapped and counts as the program's memory (RSS) until the system is short of memory and finds that
// nobody uses it. After Trim the page is only in the system's cache, which the system empties first; a page that is
// used again is mapped from there. Nothing is lost: Trim gives back only pages that are identical to the file.
package resident

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const (
	// settled is longer than a program takes to start on a machine that has time for it. every is how often Trim works after
	// some turns, each twice as long after the last: for what starts slowly, and for the pages of seldom used code. An idle
	// coordinator maps 10 to 20 MB of those within 2 minutes. A turn costs 4 ms there, and then some 200 faults that read no
	// disk.
	settled = 20 * time.Second
	every   = 2 * time.Minute
)

// Trim gives unused pages back until ctx ends, and returns nil. Where the system does not say what is mapped, it does
// nothing.
func Trim(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	timer := time.NewTimer(settled)
	defer timer.Stop()
	for pause := settled; ; pause = min(2*pause, every) {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		pages, err := unused()
		if err != nil {
			logger.V(2).Info("Can't give back the memory that only the start needed", "err", err)
		}
		for _, m := range pages {
			// This is advice: if the system ignores it, the pages stay mapped.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
		}
		timer.Reset(pause)
	}
}

// mapping is a range of addresses; end is excluded.
type mapping struct{ begin, end uintptr }

// unused returns where this process has mapped its own program's file and has written nothing.
func unused() ([]mapping, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return untouched(f, program)
}

// untouched reads a smaps file and returns the mappings of a program's file that can't be written to and never were. A
// page that was written before it was protected would be lost.
func untouched(smaps io.Reader, program string) ([]mapping, error) {
	var found []mapping
	var m mapping
	its := false // whether m belongs to the program's file and can't be written to
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		name, isValue := strings.CutSuffix(fields[0], ":")
		if !isValue {
			var err error
			if m, err = parse(fields[0]); err != nil {
				return nil, err
			}
			its = len(fields) >= 6 && strings.HasPrefix(fields[1], "r-") && strings.Join(fields[5:], " ") == program
			continue
		}
		if its && name == "Anonymous" && fields[1] == "0" {
			found = append(found, m)
		}
	}
	return found, lines.Err()
}

func parse(text string) (mapping, error) {
	begin, end, _ := strings.Cut(text, "-")
	from, err := strconv.ParseUint(begin, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("addresses %q: %w", text, err)
	}
	to, err := strconv.ParseUint(end, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("addresses %q: %w", text, err)
	}
	return mapping{uintptr(from), uintptr(to)}, nil
}
