// Package artifact keeps built files in a cache directory. Each set of files has a key that stands for all its inputs, so that
// a finished build is never repeated and an incomplete one is never used.
//
// Layout: DIR/NAME-KEY/ holds a set's files and its manifest.json. The builder holds the lock DIR/lock. DIR/tmp-* and
// DIR/trash-* are garbage unless the lock is held.
//
// Invariants:
//   - A set becomes visible by one rename, after its files and manifest are on the disk. A process that is killed at any
//     instruction leaves garbage in tmp-*, which the next builder removes.
//   - A set is used only while its files match its manifest: kind, mode and size always, and the content's hash whenever a time
//     stamp differs from the recorded one. Anything else is a miss, and says why.
//   - A shared lock pins an entry in use; the kernel drops the lock with its process. Pruning skips pinned entries.
//   - One process builds at a time. It uses flock, because such a lock ends with its holder and a PID file may not.
//
// The alternative to time stamps was to hash every file at each start: half a gigabyte of binaries would cost most of the
// second in which a lab must start.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// DefaultKeep is how many sets of a name are kept: the present one, the one before, and one more for going back and
// forth.
const DefaultKeep = 3

// Store is a cache directory. Only Dir has no useful zero value.
type Store struct {
	// Dir is created at the first build.
	Dir string

	// Keep is how many sets of a name survive pruning, besides those in use; zero means DefaultKeep.
	Keep int

	// Clock orders sets by their last use; nil means the real clock.
	Clock clock.WithTicker

	// Waiting, if set, is called once while another process builds, with that process's name for itself.
	Waiting func(holder string)
}

// Spec is a wanted set of files.
type Spec struct {
	// Name groups sets, such as "kubernetes": the last few of a name are kept. It has only letters and digits.
	Name string

	// Key stands for everything that decides the content; see Key.
	Key string

	// Files are the paths that the set must have, slash-separated and relative to its directory.
	Files []string

	// Seed makes Build start with these Files of the newest other set of this name instead of an empty directory. They
	// are hard links: Build must replace files, and never write into them. `go build -o` does so, and skips linking
	// what is up to date.
	Seed bool

	// Build fills dir. reason says why no set can be used: it is the first build, or the present set is damaged.
	Build func(ctx context.Context, dir, reason string) error
}

// Entry is a complete set of files. It is safe from pruning until it is closed or its process ends.
type Entry struct {
	// Dir is the directory of the set, absolute if the store's is.
	Dir string

	pin *os.File
}

// Path returns the path of a file of the set.
func (e *Entry) Path(file string) string { return filepath.Join(e.Dir, filepath.FromSlash(file)) }

// Close allows pruning of the set. The files stay for now.
func (e *Entry) Close() error { return e.pin.Close() }

// Hold pins a set that Get returned earlier, perhaps in another process. dir is the set's directory. Hold does not check the
// set again.
func Hold(dir string) (*Entry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("built programs are gone, build them again: %w", err)
	}
	if gone := pin(f, dir); gone != nil {
		f.Close()
		return nil, fmt.Errorf("built programs in %s are gone, build them again: %w", dir, gone)
	}
	return &Entry{Dir: dir, pin: f}, nil
}

// errPruned says that a set was removed, or about to be, when it was to be pinned.
var errPruned = errors.New("it was just removed")

// pin takes the lock on an open directory that protects it from pruning.
func pin(dir *os.File, path string) error {
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return errPruned
	}
	opened, err := dir.Stat()
	if err != nil {
		return err
	}
	// Between open and lock it may have been pruned, and even built again.
	if now, err := os.Stat(path); err != nil || !os.SameFile(opened, now) {
		return errPruned
	}
	return nil
}

// Key hashes parts. No two different lists give the same hash.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

func (s *Store) clock() clock.WithTicker {
	if s.Clock == nil {
		return clock.RealClock{}
	}
	return s.Clock
}

func (s *Store) path(spec Spec) string { return filepath.Join(s.Dir, spec.Name+"-"+spec.Key) }

// Get returns the wanted set. It builds the set first if there is none or it is damaged.
func (s *Store) Get(ctx context.Context, spec Spec) (*Entry, error) {
	if e, _ := s.Lookup(spec); e != nil {
		return e, nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	e, reason := s.Lookup(spec) // the last holder of the lock may have built it
	if e != nil {
		return e, nil
	}
	if err := s.clean(); err != nil {
		return nil, err
	}
	if err := s.build(ctx, spec, reason); err != nil {
		return nil, err
	}
	if e, reason = s.Lookup(spec); e == nil {
		return nil, fmt.Errorf("cache %s: what was just built is unusable: %s", s.path(spec), reason)
	}
	if err := s.prune(spec.Name); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Lookup returns the wanted set if it exists and is complete; otherwise nil and the reason.
func (s *Store) Lookup(spec Spec) (*Entry, string) {
	path := s.path(spec)
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "not built yet"
	} else if err != nil {
		return nil, err.Error()
	}
	if err = pin(dir, path); err == nil {
		err = check(path, spec.Files)
	}
	if err != nil {
		dir.Close()
		return nil, err.Error()
	}
	// The time of the last use decides what is pruned. A cache that can't be written is never pruned.
	now := s.clock().Now()
	_ = os.Chtimes(path, now, now)
	return &Entry{Dir: path, pin: dir}, ""
}

func (s *Store) build(ctx context.Context, spec Spec, reason string) (err error) {
	work, err := os.MkdirTemp(s.Dir, "tmp-")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if spec.Seed {
		if err := s.seed(spec, work); err != nil {
			return err
		}
	}
	if err := spec.Build(ctx, work, reason); err != nil {
		return err
	}
	if err := seal(work, spec.Files); err != nil {
		return fmt.Errorf("cache %s: %w", spec.Name, err)
	}
	final := s.path(spec)
	if err := s.discard(final); err != nil {
		return err
	}
	if err := os.Rename(work, final); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return syncDir(s.Dir)
}

// seed links the files of the newest complete set of the same name into work.
func (s *Store) seed(spec Spec, work string) error {
	sets, err := s.sets(spec.Name)
	if err != nil {
		return err
	}
	for _, set := range slices.Backward(sets) {
		m, err := readManifest(set)
		if err != nil || verify(set, &m) != nil {
			continue
		}
		for _, f := range m.Files {
			if !slices.Contains(spec.Files, f.Path) {
				continue
			}
			to := filepath.Join(work, filepath.FromSlash(f.Path))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return fmt.Errorf("cache: %w", err)
			}
			if err := os.Link(filepath.Join(set, filepath.FromSlash(f.Path)), to); err != nil {
				return fmt.Errorf("cache: %w", err)
			}
		}
		return nil
	}
	return nil
}

// sets returns the directories of a name, sorted by last use.
func (s *Store) sets(name string) ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	type set struct {
		path string
		used time.Time
	}
	var found []set
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), name+"-") {
			found = append(found, set{filepath.Join(s.Dir, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b set) int {
		if c := a.used.Compare(b.used); c != 0 {
			return c
		}
		return strings.Compare(a.path, b.path)
	})
	paths := make([]string, len(found))
	for i, f := range found {
		paths[i] = f.path
	}
	return paths, nil
}

// prune removes the sets of a name that were not used lately and are not in use.
func (s *Store) prune(name string) error {
	sets, err := s.sets(name)
	if err != nil {
		return err
	}
	keep := s.Keep
	if keep == 0 {
		keep = DefaultKeep
	}
	for _, path := range sets[:max(len(sets)-keep, 0)] {
		if err := s.discardUnused(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) discardUnused(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer dir.Close()
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return s.discard(path)
}

// discard removes a directory. Others see it vanish in one step.
func (s *Store) discard(path string) error {
	trash, err := os.MkdirTemp(s.Dir, "trash-")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := os.Rename(path, filepath.Join(trash, "it")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cache: %w", err)
	}
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// clean removes what killed builders left behind. The caller must hold the lock.
func (s *Store) clean() error {
	for _, pattern := range []string{"tmp-*", "trash-*"} {
		rubbish, err := filepath.Glob(filepath.Join(s.Dir, pattern))
		if err != nil {
			return fmt.Errorf("cache: %w", err)
		}
		for _, path := range rubbish {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("cache: %w", err)
			}
		}
	}
	return nil
}
