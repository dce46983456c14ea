package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxFile bounds what is read of any file, in bytes. A chain of certificates with a key has 10 KB.
const maxFile = 1 << 20

// ErrLocked says that another process is asking for certificates in the same directory.
var ErrLocked = errors.New("another process is asking for a certificate in the same directory")

// KeyDir is a directory with keys, certificates and tokens. A caller that changes a file must hold the lock for it.
type KeyDir struct {
	Path string
	// Before is called before each step of a change of files, and can make the step fail. Tests simulate broken disks and crashes
	// with it. nil means no call.
	Before func(step string) error
}

// File returns the path of a file.
func (d *KeyDir) File(name string) string { return filepath.Join(d.Path, name) }

// Lock makes the directory and takes a lock in it, or fails with ErrLocked. The kernel releases the lock when the process dies.
func (d *KeyDir) Lock(name string) (unlock func(), err error) {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nil, fmt.Errorf("directory of certificates: %w", err)
	}
	info, err := os.Stat(d.Path)
	if err != nil {
		return nil, fmt.Errorf("directory of certificates: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others may write to the directory of certificates %s (%s), and so replace the node's key: "+
			"chmod 0700 it", d.Path, info.Mode())
	}
	f, err := os.OpenFile(d.File(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("directory of certificates: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w, %s", ErrLocked, d.Path)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// Write replaces a file in one step. After a power cut the file is the old one or the new one, whole. Only one caller may write a
// file at a time, because the temporary file has a fixed name.
func (d *KeyDir) Write(name string, content []byte) (err error) {
	path := d.File(name)
	temporary := path + ".new"
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.step("create"); err != nil {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	half := len(content) / 2
	_, err = f.Write(content[:half])
	err = errors.Join(err, d.step("write"))
	if err == nil {
		_, err = f.Write(content[half:])
	}
	if err == nil {
		err = errors.Join(d.step("sync"), f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = d.step("rename"); err == nil {
			err = os.Rename(temporary, path)
		}
	}
	if err != nil {
		_ = os.Remove(temporary) // it would fail for the reason that the write failed
		return err
	}
	return d.sync()
}

// Remove deletes a file. It is not an error if the file does not exist.
func (d *KeyDir) Remove(name string) error {
	if err := os.Remove(d.File(name)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return d.sync()
}

func (d *KeyDir) sync() error {
	if err := d.step("sync directory"); err != nil {
		return err
	}
	f, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *KeyDir) step(name string) error {
	if d.Before == nil {
		return nil
	}
	return d.Before(name)
}

// ReadKeyFile reads a file of at most maxFile bytes.
func ReadKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return content, nil
}
