package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"yurtcoordinator/internal/store/pages"
	"yurtcoordinator/internal/stream"
)

// Names within the directory.
const (
	fileName    = "store.db"
	corruptName = "store.db.corrupt" // at most one is kept
	newName     = "store.db.new"
)

// chunkBytes is how much of a large collection goes into one transaction, which bbolt holds in memory about three times.
const chunkBytes = 1 << 20

// Compaction at Open: worth a second of writing if it frees half of the file and 4 MiB.
const compactBytes = 4 << 20

// file is the store's file, open. The writer has bbolt to itself; reading goes by tree, beside it.
type file struct {
	f  *os.File
	db *bbolt.DB // nil: the file can only be read
	// begun is bbolt's number of the latest transaction that was begun. Transaction N+2 may write over pages of state N.
	begun atomic.Uint64
	// As of the last transaction: what all blobs add up to, and the clock.
	blobs tally
	asked time.Duration
	coder coder // the writer's
}

// brokenError is what bbolt panicked with. It is not to be used any more, not even to close it: it may hold its locks.
type brokenError struct{ cause any }

func (e *brokenError) Error() string { return fmt.Sprintf("bbolt failed: %v", e.cause) }

// guarded runs what may touch bbolt's memory map, where a sector that cannot be read is a fault.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = &brokenError{cause}
		}
	}()
	return f()
}

// openBolt opens a file that has been verified, or a new one.
func openBolt(path string, sync bool) (*file, error) {
	file := &file{}
	err := guarded(func() (err error) {
		file.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: time.Second, NoSync: !sync, FreelistType: bbolt.FreelistArrayType,
			OpenFile: func(name string, flag int, mode fs.FileMode) (f *os.File, err error) {
				file.f, err = os.OpenFile(name, flag, mode)
				return file.f, err
			},
		})
		return err
	})
	if err != nil {
		file.close(err)
		return nil, fmt.Errorf("open %s to write: %w", path, err)
	}
	return file, nil
}

// close frees the file. After a panic of bbolt its map stays: nobody knows who is in it.
func (f *file) close(because error) {
	if f == nil || f.f == nil {
		return
	}
	if broken := (*brokenError)(nil); !errors.As(because, &broken) && f.db != nil {
		if guarded(f.db.Close) == nil {
			return
		}
	}
	_ = unix.Flock(int(f.f.Fd()), unix.LOCK_UN) // the map holds the lock as well; it fails if bbolt has closed the file
	_ = f.f.Close()
}

// update runs one transaction.
func (f *file) update(point faults, change func(*bbolt.Tx) error) error {
	if err := point.at("begin"); err != nil {
		return err
	}
	return guarded(func() error {
		var mapped int64
		err := f.db.Update(func(tx *bbolt.Tx) error {
			f.begun.Store(uint64(tx.ID()))
			mapped = tx.Size()
			if err := change(tx); err != nil {
				return err
			}
			return point.at("commit")
		})
		if err != nil {
			return err
		}
		f.release(mapped)
		return point.at("committed")
	})
}

// release gives back the memory of bbolt's map, which holds what a transaction has looked at for as long as the system has
// room, and counts as this process's. The next transaction reads it again, mostly from the system's cache. The map is
// larger than the pages in use were before the transaction, so nothing else's memory is meant.
func (f *file) release(bytes int64) {
	// It is advice: if it is not taken, the memory stays in use.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, f.db.Info().Data, uintptr(bytes), unix.MADV_DONTNEED)
}

// tree is the latest state.
func (f *file) tree() (*pages.Tree, error) {
	info, err := f.f.Stat()
	if err != nil {
		return nil, err
	}
	return pages.Read(f.f, info.Size())
}

// used is how many bytes are in use.
func (f *file) used() int64 {
	t, err := f.tree()
	if err != nil {
		return 0
	}
	free := 0
	if f.db != nil {
		stats := f.db.Stats()
		free = stats.FreePageN + stats.PendingPageN
	}
	return (int64(t.High) - int64(free)) * int64(t.PageSize)
}

// faults, in tests, fail at points that a disk may fail at: nil never does.
type faults func(point string) error

func (f faults) at(point string) error {
	if f == nil {
		return nil
	}
	return f(point)
}

// opened is what opening has come to.
type opened struct {
	file     *file // nil: the disk cannot be read
	contents *contents
	corrupt  string // what was found corrupt
	err      error  // why the disk cannot be written
}

// openFile verifies what is in the directory and opens it: to write if that is possible, else to read. It keeps what is
// intact of a corrupt file, and compacts one with much room.
func openFile(dir string, v *vault, point faults) opened {
	path := filepath.Join(dir, fileName)
	_ = os.Remove(filepath.Join(dir, newName)) // what a crash has left; if it stays, making it anew fails and says so
	f, found, err := openVerified(path, v, point)
	if errors.Is(err, fs.ErrNotExist) {
		if err = rewrite(dir, found, point); err == nil {
			return writable(path, found, nil, "")
		}
	}
	if err != nil {
		return opened{contents: found, err: fmt.Errorf("open the store: %w", err)}
	}
	reason := strings.Join(found.problems, "; ")
	roomy := found.tree != nil && found.size > compactBytes && uint64(found.free) > found.tree.High/2
	if reason == "" && !roomy {
		return writable(path, found, f, "")
	}
	if err := rewrite(dir, found, point); err == nil {
		_ = f.Close()
		foreign := found.foreign // which are not in the new one
		if f, found, err = openVerified(path, v, point); err != nil {
			return opened{contents: found, corrupt: reason, err: fmt.Errorf("read the store anew: %w", err)}
		}
		found.foreign += foreign
	} else if reason != "" {
		err = fmt.Errorf("keep what is intact of a corrupt store: %w", err)
		return opened{file: &file{f: f}, contents: found, corrupt: reason, err: err}
	}
	return writable(path, found, f, reason)
}

// openVerified opens a file to read, and verifies what is in it: nothing if that fails.
func openVerified(path string, v *vault, point faults) (f *os.File, found *contents, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, &contents{vault: v}, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file; remove it", path)
	}
	if err == nil {
		err = point.at("open")
	}
	if err == nil {
		_ = f.Chmod(0o600) // it fails on a read-only disk, where nothing can be done about it
		found, err = verify(f, info.Size(), v)
	}
	if err != nil {
		_ = f.Close()
		return nil, &contents{vault: v}, err
	}
	return f, found, nil
}

// writable goes from reading a file to writing it. f may be nil; else it is closed, or stays in use if the file cannot be
// written.
func writable(path string, found *contents, f *os.File, reason string) opened {
	w, err := openBolt(path, true)
	if err != nil {
		o := opened{contents: found, corrupt: reason, err: err}
		if f != nil {
			o.file = &file{f: f}
		}
		return o
	}
	if f != nil {
		_ = f.Close()
	}
	w.coder.vault = found.vault
	w.blobs, w.asked = found.tally, found.asked
	return opened{file: w, contents: found, corrupt: reason}
}

// rewrite makes a new file of what is intact in an old one and puts it in its place. A corrupt one is kept aside.
func rewrite(dir string, old *contents, point faults) error {
	path, next := filepath.Join(dir, fileName), filepath.Join(dir, newName)
	if err := point.at("rewrite"); err != nil {
		return err
	}
	w, err := openBolt(next, false)
	if err != nil {
		return err
	}
	err = guarded(func() error { return fill(w.db, old) })
	if err == nil {
		err = guarded(w.db.Sync)
	}
	w.close(err)
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	if len(old.problems) > 0 {
		if err := keepAside(path, filepath.Join(dir, corruptName)); err != nil {
			return fmt.Errorf("move the corrupt store aside: %w", err)
		}
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("put the new store in its place: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the store's directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the store's directory: %w", err)
	}
	return nil
}

// keepAside gives a file a second name, so that there is one under its own until another takes its place.
func keepAside(path, name string) error {
	_ = os.Remove(name) // Link says so if it is still there
	if os.Link(path, name) == nil {
		return nil
	}
	return os.Rename(path, name) // a file system without links
}

// fill writes a new file.
func fill(db *bbolt.DB, old *contents) error {
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketFormat, bucketCollections, bucketBlobs} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		if err := putTally(tx, tally{}); err != nil {
			return err
		}
		if err := putAsked(tx, old.asked); err != nil {
			return err
		}
		return tx.Bucket([]byte(bucketFormat)).Put([]byte(keyFormat),
			seal(ofFormat, 0, []byte(keyFormat), []byte{formatVersion}))
	})
	if err != nil || old.tree == nil {
		return err
	}
	// The pages are visited a second time. What was verified is verified again: the disk is not to be trusted.
	t := old.tree.Again()
	if err := copyBlobs(db, t, old); err != nil {
		return err
	}
	for _, c := range old.collections {
		if err := copyCollection(db, t, c, old.vault); err != nil {
			return fmt.Errorf("%s: %w", c.id, err)
		}
	}
	return nil
}

func putTally(tx *bbolt.Tx, blobs tally) error {
	return tx.Bucket([]byte(bucketFormat)).Put([]byte(keyBlobs), seal(ofBlobs, 0, []byte(keyBlobs), blobs.append(nil)))
}

func putAsked(tx *bbolt.Tx, asked time.Duration) error {
	return tx.Bucket([]byte(bucketFormat)).Put([]byte(keyAsked),
		seal(ofAsked, 0, []byte(keyAsked), binary.BigEndian.AppendUint64(nil, uint64(asked/time.Second))))
}

func copyBlobs(db *bbolt.DB, t *pages.Tree, old *contents) error {
	if len(old.blobs) == 0 {
		return nil
	}
	w := chunks{update: db.Update, bucket: []byte(bucketBlobs)}
	var all tally
	err := t.Walk(old.blobBucket, func(key, value []byte, _ bool) error {
		if _, ok := old.blobs[string(key)]; !ok {
			return nil
		}
		if _, err := old.vault.unsealBlob(key, value); err != nil {
			return err
		}
		all.put(value, sealHead)
		return w.put(bytes.Clone(key), bytes.Clone(value))
	})
	if err != nil && w.count < len(old.blobs) { // a broken end of the bucket, which was not to be kept, is no matter
		return err
	}
	return w.end(func(tx *bbolt.Tx) error { return putTally(tx, all) })
}

func copyCollection(db *bbolt.DB, t *pages.Tree, c stored, v *vault) error {
	w := chunks{update: db.Update, bucket: objectsOf(c.number)}
	reader := coder{vault: v}
	found, err := reader.scan(t, c.number, c.bucket, func(key, value []byte, _ stream.Object) error {
		return w.put(bytes.Clone(key), bytes.Clone(value))
	})
	if err == nil && found != c.objects {
		err = pages.Corrupt("it has changed")
	}
	if err != nil {
		return err
	}
	return w.end(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketCollections)).Put(numberKey(c.number), c.encode(c.number))
	})
}

// chunks writes a large bucket in transactions of bounded size.
type chunks struct {
	update func(func(*bbolt.Tx) error) error
	bucket []byte
	held   []put
	bytes  int
	count  int
}

func (c *chunks) put(key, value []byte) error {
	c.held = append(c.held, put{key, value})
	c.count++
	if c.bytes += len(key) + len(value); c.bytes < chunkBytes {
		return nil
	}
	return c.end(nil)
}

// end writes what is held, and what also does with it.
func (c *chunks) end(also func(*bbolt.Tx) error) error {
	err := c.update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(c.bucket)
		if err != nil {
			return err
		}
		for _, p := range c.held {
			if err := b.Put(p.key, p.value); err != nil {
				return err
			}
		}
		if also == nil {
			return nil
		}
		return also(tx)
	})
	clear(c.held)
	c.held, c.bytes = c.held[:0], 0
	return err
}

// openReading opens the file as it is, which somebody has verified; nil if that fails, too.
func openReading(dir string) *file {
	f, err := os.Open(filepath.Join(dir, fileName))
	if err != nil {
		return nil
	}
	return &file{f: f}
}
