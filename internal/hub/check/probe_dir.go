package check

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// probeDir looks at a directory that the hub needs, or at the nearest one above it that exists.
func probeDir(flag, path string) Dir {
	d := Dir{Flag: flag, Path: path, At: path, Free: -1, Inodes: -1}
	if !filepath.IsAbs(path) {
		d.Trouble = "not an absolute path"
		return d
	}
	info, err := os.Stat(path)
	for errors.Is(err, fs.ErrNotExist) && d.At != "/" {
		d.Missing = true
		d.At = filepath.Dir(d.At)
		info, err = os.Stat(d.At)
	}
	switch {
	case err != nil:
		d.Trouble = cause(err)
		return d
	case !info.IsDir():
		d.Trouble = d.At + " is not a directory"
		return d
	case !d.Missing:
		d.Mode = info.Mode()
	}
	var at unix.Statfs_t
	if err := unix.Statfs(d.At, &at); err != nil {
		d.Trouble = cause(err)
		return d
	}
	d.ReadOnly = at.Flags&unix.ST_RDONLY != 0
	d.Free = int64(at.Bavail) * at.Bsize
	if at.Files > 0 {
		d.Inodes = int64(at.Ffree)
	}
	d.Writable = unix.Access(d.At, unix.W_OK|unix.X_OK) == nil
	if !d.Missing {
		d.contents()
	}
	return d
}

// contents finds out how much is in the directory, whether something is damaged, and who holds the lock.
func (d *Dir) contents() {
	const most = 1000 // a hub has a dozen
	names, err := readNames(d.Path, most)
	if err != nil {
		return // empty
	}
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(d.Path, name)); err == nil && info.Mode().IsRegular() {
			d.Used += info.Size()
		}
		d.Corrupt = d.Corrupt || strings.HasSuffix(name, ".corrupt")
	}
	d.Holder, d.Locked = lockHolder(d.Path)
}

// lockHolder looks for a lock on a directory without taking one, which could keep a hub from starting.
func lockHolder(path string) (holder string, locked bool) {
	info, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	content, err := readSome("/proc/locks")
	if err != nil {
		return "", false
	}
	for _, pid := range parseLocks(content, stat.Ino) {
		if hasOpen(pid, info) {
			return processName(pid), true
		}
	}
	return "", false
}

// hasOpen reports whether a process has this file open. (Some file systems show other inode numbers in /proc/locks than in
// stat(2), so a matching number is only a hint.)
func hasOpen(pid string, info fs.FileInfo) bool {
	fds, _ := readNames(filepath.Join("/proc", pid, "fd"), maxFiles)
	return slices.ContainsFunc(fds, func(fd string) bool {
		open, err := os.Stat(filepath.Join("/proc", pid, "fd", fd))
		return err == nil && os.SameFile(open, info)
	})
}

// parseLocks reads a file like /proc/locks, and returns the processes that hold a flock(2) lock on a file with this
// inode.
func parseLocks(content []byte, inode uint64) (pids []string) {
	suffix := fmt.Sprintf(":%d", inode)
	for row := range bytes.Lines(content) {
		fields := strings.Fields(string(row)) // 1: FLOCK ADVISORY WRITE 812 fe:01:1234 0 EOF
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], suffix) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			pids = append(pids, fields[4])
		}
	}
	return pids
}
