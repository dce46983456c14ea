// Package resident has a program let go of the pages of its own file that it does not use any more.
//
// Most of a program of ours is Kubernetes' libraries, and most of these are needed when it starts, to make their tables.
// Such a page stays mapped, and counts as the program's memory (RSS), until the system is short of memory and has found
// out that nobody uses it. Let go, it is the system's cache, the first to be taken; a page that is used after all is mapped
// again from there. Nothing is lost: only pages that are as they are in the file are let go.
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
	// settled is how long a program takes to start, by far; every is how often pages are let go from then on, those of
	// what it does seldom.
	settled = 20 * time.Second
	every   = 10 * time.Minute
)

// Trim lets go of pages until ctx ends, and returns nil. Where the system does not say what is mapped, it does nothing.
func Trim(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	timer := time.NewTimer(settled)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		pages, err := unused()
		if err != nil {
			logger.V(2).Info("Pages of the program that its start alone needed stay mapped", "err", err)
		}
		for _, m := range pages {
			// It is advice: if it is not taken, the pages stay mapped.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
		}
		timer.Reset(every)
	}
}

// mapping is a range of addresses, end not among them.
type mapping struct{ begin, end uintptr }

// unused returns where this process has its own program's file mapped, and has written nothing.
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

// untouched reads a smaps file for the mappings of a program's file that can't be written to and have not been: a page that
// was, before it was protected, would be lost.
func untouched(smaps io.Reader, program string) ([]mapping, error) {
	var found []mapping
	var m mapping
	its := false // whether m is of the program's file, and can't be written to
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
