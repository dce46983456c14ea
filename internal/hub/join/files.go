package join

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// create makes a file anew, with what fill writes.
func create(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	if err := remove(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Chmod(mode), f.Sync(), f.Close())
}

func writeFile(path string, content []byte, mode fs.FileMode) error {
	return create(path, mode, func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	})
}

// linkOver makes to, in one step, the same file as from. between is a name beside to.
func linkOver(from, to, between string) error {
	if err := errors.Join(remove(between), os.Link(from, between)); err != nil {
		return err
	}
	// A rename onto another name of the same file does nothing.
	return errors.Join(os.Rename(between, to), remove(between), syncDir(filepath.Dir(to)))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// open opens a regular file that others may have written, and follows no link.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, f.Close(), fmt.Errorf("%s is no regular file", path))
	}
	return f, nil
}

func readFile(path string) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(content) > maxText {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxText)
	}
	return content, err
}

func sumOf(path string) (sum [sha256.Size]byte, err error) {
	f, err := open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	copy(sum[:], h.Sum(nil))
	return sum, nil
}
