package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxProcesses bounds how many processes are looked through, maxFiles how many open files of one.
const maxProcesses, maxFiles = 10_000, 10_000

// listeners returns the inodes of the sockets that listen in this network namespace, by port.
func listeners() map[int][]string {
	found := map[int][]string{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := readSome(path)
		if err != nil {
			continue // without /proc no holder can be named
		}
		for port, inodes := range parseListeners(string(content)) {
			found[port] = append(found[port], inodes...)
		}
	}
	return found
}

// parseListeners reads a file like /proc/net/tcp, and returns the sockets that listen.
func parseListeners(content string) map[int][]string {
	const listening = "0A"
	found := map[int][]string{}
	for row := range strings.Lines(content) {
		fields := strings.Fields(row)
		if len(fields) < 10 || fields[3] != listening {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			found[int(port)] = append(found[int(port)], fields[9])
		}
	}
	return found
}

// lookAtPort finds out whether somebody listens at the port, and who, or else whether anybody could. For that it listens
// itself, only where nobody else does, and stops at once.
func lookAtPort(ctx context.Context, p *Port, held map[int][]string) {
	_, text, _ := net.SplitHostPort(p.Address)
	port, _ := strconv.Atoi(text)
	inodes := held[port]
	if len(inodes) > 0 {
		p.Holder = holder(inodes)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", p.Address)
	switch {
	case err == nil:
		p.Holder = "" // the holder has the same port at another address
		_ = l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		p.Held = true
	default:
		p.Trouble = cause(err)
	}
}

// holder names the process that has one of these sockets; empty if that cannot be seen.
func holder(inodes []string) string {
	links := map[string]bool{}
	for _, i := range inodes {
		links["socket:["+i+"]"] = true
	}
	for _, pid := range processes() {
		fds, err := readNames(filepath.Join("/proc", pid, "fd"), maxFiles)
		if err != nil {
			continue // another user's process, or gone
		}
		for _, fd := range fds {
			if link, err := os.Readlink(filepath.Join("/proc", pid, "fd", fd)); err == nil && links[link] {
				return processName(pid)
			}
		}
	}
	return ""
}

func processName(pid string) string {
	name, err := readSome(filepath.Join("/proc", pid, "comm"))
	if err != nil {
		name = []byte("a program")
	}
	return fmt.Sprintf("%s (process %s)", line(string(name)), pid)
}

// processes returns the IDs of the processes that can be seen.
func processes() []string {
	names, _ := readNames("/proc", maxProcesses)
	var pids []string
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			pids = append(pids, name)
		}
	}
	return pids
}

func readNames(dir string, most int) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(most)
	if len(names) > 0 {
		return names, nil
	}
	return nil, err
}

// commandLine returns a process's command line; nil if it cannot be seen.
func commandLine(pid string) []string {
	content, err := readSome(filepath.Join("/proc", pid, "cmdline"))
	if err != nil || len(content) == 0 {
		return nil
	}
	var argv []string
	for arg := range bytes.SplitSeq(bytes.TrimRight(content, "\x00"), []byte{0}) {
		argv = append(argv, string(arg))
	}
	return argv
}
