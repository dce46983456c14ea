package check

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// probeDir looks at a directory that the hub needs, or at the nearest one above it that exists.
func probeDir(flag, path string) Dir {
	d := Dir{Flag: flag, Path: path}
	at := path
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
		at = filepath.Dir(at)
		info, err = os.Stat(at)
	}
	var of unix.Statfs_t
	if err == nil {
		err = unix.Statfs(at, &of)
	}
	d.Free = int64(of.Bavail) * of.Bsize
	switch {
	case !filepath.IsAbs(path):
		d.Trouble = "it is not an absolute path"
	case err != nil:
		d.Trouble = cause(err)
	case !info.IsDir():
		d.Trouble = at + " is not a directory"
	case of.Flags&unix.ST_RDONLY != 0:
		d.Trouble = at + " is on a file system that is read-only"
	case of.Files > 0 && of.Ffree == 0:
		d.Trouble = "the file system of " + at + " has no inodes left, so no files can be created"
	case unix.Access(at, unix.W_OK|unix.X_OK) != nil:
		d.Trouble = at + " may not be written to"
	}
	return d
}
