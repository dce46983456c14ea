package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a busy lock is tried again. A blocking system call could not be interrupted.
const lockPoll = 200 * time.Millisecond

// lock takes the builder's lock, and waits for it until ctx ends.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	path := filepath.Join(s.Dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	ticker := s.clock().NewTicker(lockPoll)
	defer ticker.Stop()
	for told := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("cache: lock %s: %w", path, err)
		}
		if !told && s.Waiting != nil {
			s.Waiting(holder(path))
		}
		told = true
		select {
		case <-ticker.C():
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the build of %s: %w", holder(path), context.Cause(ctx))
		}
	}
	// This is for those who wait; nothing depends on it.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d", os.Getpid()), 0)
	return func() { f.Close() }, nil
}

// holder returns what the lock's holder wrote about itself.
func holder(path string) string {
	b, err := os.ReadFile(path)
	if b = bytes.TrimSpace(b); err != nil || len(b) == 0 || len(b) > 100 {
		return "another process"
	}
	return string(b)
}
