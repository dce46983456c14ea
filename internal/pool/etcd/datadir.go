package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// markerName is a file in each directory that a coordinator has taken for its data: one that it made, or that it found empty. A
// later coordinator empties only a directory with this file. The coordinator locks the file while it runs. The kernel releases
// the lock with the process, however that ends.
const markerName = ".yurt-coordinator"

// maxSocketPath is the longest path of a unix socket on Linux, without its final zero.
const maxSocketPath = 107

// DataDir is a private, empty, locked directory.
type DataDir struct {
	Path   string
	marker *os.File
	Memory bool // on a memory file system
}

// OpenDataDir creates the directory at path, or takes an existing one. It empties a directory only if a coordinator has marked it
// (markerName) and no running coordinator uses it. It refuses any other directory with files.
func OpenDataDir(path string) (*DataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if longest := filepath.Join(path, peerSocket); len(longest) > maxSocketPath {
		return nil, fmt.Errorf("--data-dir %s is too long a path for a unix socket; it may have %d bytes",
			path, maxSocketPath-len(peerSocket)-1)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	d := &DataDir{Path: path, Memory: onMemory(path)}
	if len(entries) > 0 {
		if d.marker, err = lockMarker(filepath.Join(path, markerName)); err != nil {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("--data-dir %s: it has files that no coordinator made, and a start would "+
					"delete them; give an empty directory or one that does not exist", path)
			case errors.Is(err, unix.EWOULDBLOCK):
				return nil, fmt.Errorf("--data-dir %s: another coordinator is using it; "+
					"stop that one or give another", path)
			}
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
		if err := d.empty(); err != nil {
			d.marker.Close()
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
	}
	if err := d.makePrivate(); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return d, nil
}

// makePrivate closes the directory to others and creates the marker, locked before anybody can see it.
func (d *DataDir) makePrivate() error {
	if err := os.Chmod(d.Path, 0o700); err != nil {
		return err
	}
	if d.marker != nil {
		return nil
	}
	temp := filepath.Join(d.Path, markerName+".new")
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("lock %s: %w", temp, err)
	}
	if err := os.Rename(temp, filepath.Join(d.Path, markerName)); err != nil {
		f.Close()
		return err
	}
	d.marker = f
	return nil
}

func lockMarker(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// empty removes everything except the marker, which stays so that the next start may still empty the directory after a kill.
func (d *DataDir) empty() error {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == markerName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.Path, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the directory. It leaves a mount point, which can't be deleted, empty.
func (d *DataDir) Remove() error {
	err := d.empty()
	if err == nil {
		err = os.Remove(filepath.Join(d.Path, markerName))
	}
	d.marker.Close()
	if err != nil {
		return fmt.Errorf("remove the pool's data: %w", err)
	}
	if err := os.Remove(d.Path); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove the pool's data: %w", err)
	}
	return nil
}

func onMemory(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC
}
