package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/store/pages"
	"yurtcoordinator/internal/stream"
)

// ErrMiss says that the disk does not have what was asked for. The error that wraps it says why: it was never stored, it
// was dropped, it was found corrupt, or the disk cannot be read.
var ErrMiss = errors.New("not on the disk")

// ErrUnwritable says that the disk cannot be written now: it is full, read-only or broken. Nothing was queued. Go on from
// memory and try again later, with Replace: Position is 0 then.
var ErrUnwritable = errors.New("the disk cannot be written")

// ErrIncomplete says that changes were offered to a Sink whose Position is 0: it needs a Replace first.
var ErrIncomplete = errors.New("changes without what they change: Replace first")

// ErrOlder says that a Snapshot is older than what is held: of an earlier history, or of the same and an earlier revision.
var ErrOlder = errors.New("the snapshot is older than what is held")

// ErrBehind is the ErrMiss of a Load that has found something, but older than what a Sink of this process was given and the
// disk has not: writing failed. The Snapshot comes with it, for whom an older state is better than none.
var ErrBehind = errors.New("the disk has an older state than was known")

// ErrFull says that something does not fit: a collection that had to go for others which were read later, or a blob
// beyond the bounds.
var ErrFull = errors.New("no space left within the store's bounds")

// ErrLocked says that another process has the directory open.
var ErrLocked = errors.New("another process has the store open")

// ErrClosed says that the store has been closed.
var ErrClosed = errors.New("the store is closed")

// Collection names what one list or watch of one client speaks of.
type Collection struct {
	// Client is whose view it is: a user name, as "system:serviceaccount:kube-system:coredns"; empty for the node's own.
	Client string
	// Resource is what is kept.
	Resource schema.GroupVersionResource
	// Namespace, Fields and Labels narrow it, as the client sends them, in canonical form; empty: all.
	Namespace, Fields, Labels string
}

// String is the name for people to read.
func (id Collection) String() string {
	var b strings.Builder
	b.WriteString(id.Resource.GroupResource().String())
	for _, part := range []struct{ name, value string }{
		{"namespace", id.Namespace}, {"fields", id.Fields}, {"labels", id.Labels}, {"client", id.Client},
	} {
		if part.value != "" {
			b.WriteString(" " + part.name + "=" + part.value)
		}
	}
	return b.String()
}

const (
	usualMaxBytes, usualQueueBytes, usualFlushEvery = 256 << 20, 16 << 20, time.Second

	// unreadFor is how long a collection is kept that nobody reads and nobody needs (see Need). Only time in which the cloud
	// could be asked counts (see Online).
	unreadFor = 7 * 24 * time.Hour
	// touchEvery is how exactly it is known on disk when something was read.
	touchEvery = time.Hour
	// clockLag is by how much the clock on disk may be behind, which has no write of its own before.
	clockLag = 2 * touchEvery
)

// Config is what a Store needs.
type Config struct {
	// Dir is the directory, which belongs to the store alone. It is made if need be, with mode 0700. Required.
	Dir string
	// BlobShares guarantees bytes to kinds of blobs, by what their keys begin with up to and with the first slash. What they
	// leave of 16 MiB is for all. nil means that all of it is.
	BlobShares map[string]int
	// Last says which collections go last when space is needed, whenever they were read. nil: none does.
	Last func(Collection) bool
	// Secrets says what is encrypted. The zero value: nothing.
	Secrets Secrets
	// Prompt says what must not come back after a crash once it has been removed. The zero value: nothing.
	Prompt Prompt
	// Now is the time of day. Only its differences count; those of time.Now are right whatever is done to the machine's clock.
	// nil means time.Now.
	Now func() time.Time

	// The bounds below are for tests; 0 means what is usual.

	// maxBytes bounds what is on disk; the file itself may be larger by what a transaction needs. What has been read least
	// recently goes first.
	maxBytes int64
	// queueBytes bounds the objects that wait to be written; Sinks block beyond it.
	queueBytes int64
	// flushEvery is how long a change waits for others to be written with it. What keeps changing is written less often, up
	// to 15 times, and so much progress a crash costs.
	flushEvery time.Duration
}

// Prompt says which removals are on the disk within 3 s, however busy the rest of their collection or the blobs are: what is
// removed there would come back after a crash and be believed. Other removals wait for the pace of what they are among, which
// is 15 s at most. A nil function means none.
type Prompt struct {
	Collection func(Collection) bool
	Blob       func(key string) bool
}

func (p Prompt) of(id Collection) bool  { return p.Collection != nil && p.Collection(id) }
func (p Prompt) ofBlob(key string) bool { return p.Blob != nil && p.Blob(key) }

// Health is how the disk does.
type Health struct {
	// Err says why the disk cannot be written, and since when; empty while it can.
	Err   string
	Since time.Time
	// Corrupt says what was found corrupt since the store was opened; empty if nothing was. The file as it was is next to
	// the store's, named *.corrupt.
	Corrupt string
	// Foreign is how many collections and blobs were removed since the store was opened, because they were encrypted with
	// another key.
	Foreign int
	// Bytes are in use on disk.
	Bytes int64
}

// Store is a hub's disk. All methods are safe for concurrent use; each Sink is used by one goroutine at a time.
type Store struct {
	config  Config
	vault   *vault
	fault   faults        // of tests
	lock    *os.File      // the directory, locked
	writing chan struct{} // whose token it is to write: it is taken out by who has it
	waiting chan struct{} // something waits to be written

	mu          sync.Mutex
	closed      bool
	file        *file // nil: the disk cannot be read
	failure     error // why the disk cannot be written
	since       time.Time
	corrupt     string
	foreign     int
	used        int64
	collections map[Collection]*entry
	proved      bool // all of the file has been verified since writing failed, and it is only read
	asked       asked
	needed      map[Collection]bool // never collected; nil until somebody has said what is needed
	garbage     []uint64            // collections that are nobody's, to be removed
	queued      int64               // bytes that wait or are being written
	room        chan struct{}       // closed when there is less in the queue
	blobs       blobs
}

// Open opens a directory and verifies all that is in it. A file that is corrupt is moved aside, and what is provably
// intact in it is kept; Health says what was found. A disk that cannot be written, or not be read, is no error either:
// Health says so, and Run tries again. Open fails if the directory cannot be made or opened, and with ErrLocked if another
// process has it. The caller must call Close.
func Open(c Config) (*Store, error) { return open(c, nil) }

func open(c Config, fault faults) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("store: Config.Dir is empty")
	}
	shared := 0
	for kind, share := range c.BlobShares {
		if shared += share; share < 0 || shared > maxBlobs || kindOf(kind) != kind {
			return nil, fmt.Errorf("store: Config.BlobShares: %q: want KIND/, and at most %d bytes in all", kind, maxBlobs)
		}
	}
	c.maxBytes, c.queueBytes = cmp.Or(c.maxBytes, usualMaxBytes), cmp.Or(c.queueBytes, usualQueueBytes)
	c.flushEvery = cmp.Or(c.flushEvery, usualFlushEvery)
	if c.Now == nil {
		c.Now = time.Now
	}
	hidden, err := newVault(c.Secrets)
	if err != nil {
		return nil, err
	}
	lock, err := openDir(c.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		config: c, vault: hidden, fault: fault, lock: lock,
		writing: make(chan struct{}, 1), waiting: make(chan struct{}, 1),
		collections: map[Collection]*entry{}, room: make(chan struct{}), blobs: newBlobs(c.BlobShares),
	}
	s.writing <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adoptLocked(openFile(c.Dir, hidden, fault))
	for _, c := range s.collections {
		c.at = c.disk.at
	}
	return s, nil
}

// openDir makes, opens and locks the directory.
func openDir(path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the store's directory: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the store's directory: %w", err)
	}
	if _, err := dir.Readdirnames(1); err != nil && !errors.Is(err, io.EOF) {
		_ = dir.Close()
		return nil, fmt.Errorf("read the store's directory: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	_ = dir.Chmod(0o700) // it fails on a read-only disk, where nothing can be done about it
	return dir, nil
}

// unlockDir gives the lock up before it closes the directory. The lock belongs to every copy of the descriptor, and a process
// that this one is just starting has one until it executes its program: closing alone would leave the directory locked by it.
func unlockDir(dir *os.File) error {
	unlocked := unix.Flock(int(dir.Fd()), unix.LOCK_UN)
	return errors.Join(unlocked, dir.Close())
}

// adoptLocked makes the store what opening the file has found. A position that has been lost stays so, though the disk may
// have something: a feeder that goes on as if nothing had happened must not find it accepted.
func (s *Store) adoptLocked(o opened) {
	s.file = o.file
	if o.corrupt != "" {
		s.corrupt = o.corrupt
	}
	s.setFailureLocked(o.err)
	s.proved = o.err != nil && o.file != nil
	s.garbage = o.contents.unfinished
	s.adoptClockLocked(o.contents)
	found := map[Collection]bool{}
	for _, disk := range o.contents.collections {
		found[disk.id] = true
		c := s.collections[disk.id]
		if c == nil {
			c = &entry{read: disk.read, touched: disk.misread}
			s.collections[disk.id] = c
		}
		c.disk = &disk
		if c.at != disk.at {
			c.at = edge.Moment{History: max(c.at.History, disk.at.History)}
		}
	}
	for id, c := range s.collections {
		if !found[id] {
			c.disk, c.at.Revision = nil, 0
			c.why = cmp.Or(s.corrupt, c.why)
		}
	}
	s.blobs.adopt(o.contents.blobs, o.contents.lockedBlobs)
	s.foreign = max(s.foreign, o.contents.foreign)
	if s.file != nil {
		s.used = s.file.used()
	}
}

func (s *Store) setFailureLocked(err error) {
	if err != nil && s.failure == nil {
		s.since = s.config.Now()
	}
	s.failure = err
}

// Close frees the directory. What has not been flushed is lost.
func (s *Store) Close() error {
	<-s.writing
	defer func() { s.writing <- struct{}{} }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.file.close(s.failure)
	s.file = nil
	s.roomLocked()
	return unlockDir(s.lock)
}

// roomLocked wakes who waits for the queue.
func (s *Store) roomLocked() {
	close(s.room)
	s.room = make(chan struct{})
}

// Load reads a collection as of the last flush; what is waiting is not in it. It fails with ErrMiss and a reason, which may
// be ErrBehind. The collection counts as read.
func (s *Store) Load(id Collection) (snapshot stream.Snapshot, err error) {
	var disk stored
	err = s.read(
		func() (file *file, err error) {
			file, disk, err = s.find(id)
			return file, err
		},
		func(t *pages.Tree) error {
			snapshot, err = loadCollection(t, disk, s.vault)
			return err
		})
	if err != nil {
		return stream.Snapshot{}, fmt.Errorf("%s: %w: %w", id, ErrMiss, err)
	}
	s.Touch(id)
	if told := s.lost(id); (edge.Moment{History: snapshot.History, Revision: snapshot.Revision}).Before(told) {
		return snapshot, fmt.Errorf("%s: %w: %w: %s, there was %s", id, ErrMiss, ErrBehind, snapshot.Revision, told)
	}
	return snapshot, nil
}

// lost is the latest moment that a Sink was given of what the disk is not going to have; zero if it has all, or will.
func (s *Store) lost(id Collection) edge.Moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.collections[id]; c != nil && c.at.Revision == 0 {
		return c.told
	}
	return edge.Moment{}
}

// read reads beside the writer: get reads what find has found. A transaction writes only over pages that no state since the
// last but one uses, so what was read of a state is what was there if no second transaction began meanwhile. If the writer
// is faster, or something seems to be corrupt, it is read again with the writer at rest. There is nothing to read if find
// returns no file.
func (s *Store) read(find func() (*file, error), get func(*pages.Tree) error) error {
	for range 3 {
		file, err := find()
		if file == nil || err != nil {
			return err
		}
		if steady, err := file.read(get); err == nil && steady {
			return nil
		}
	}
	<-s.writing
	defer func() { s.writing <- struct{}{} }()
	file, err := find()
	if file == nil || err != nil {
		return err
	}
	if _, err = file.read(get); errors.Is(err, pages.ErrCorrupt) {
		s.suspect(err)
	}
	return err
}

// find says where a collection is.
func (s *Store) find(id Collection) (*file, stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[id]
	switch {
	case s.closed:
		return nil, stored{}, ErrClosed
	case s.file == nil:
		return nil, stored{}, s.failure
	case c == nil:
		return nil, stored{}, errors.New(cmp.Or(s.corrupt, "never stored"))
	case c.hidden:
		return nil, stored{}, errors.New("dropped")
	case c.disk == nil:
		return nil, stored{}, errors.New(c.why)
	}
	return s.file, *c.disk, nil
}

// read has the latest state read. It is steady if no transaction can have written over that state.
func (f *file) read(get func(*pages.Tree) error) (steady bool, err error) {
	t, err := f.tree()
	if err != nil {
		return false, err
	}
	err = get(t)
	return f.begun.Load() <= t.TxID+1, err
}

// suspect says that a verified file has gone bad. The writer verifies all of it anew.
func (s *Store) suspect(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proved = false
	if s.failure == nil {
		s.failLocked(err)
	}
	signal(s.waiting)
}

// Drop removes a collection. Load misses from now on; the disk follows with the next flush.
func (s *Store) Drop(id Collection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(id)
}

func (s *Store) dropLocked(id Collection) {
	c := s.collections[id]
	if c == nil {
		return
	}
	c.drops++
	c.hidden, c.at, c.told, c.why = true, edge.Moment{}, edge.Moment{}, "dropped"
	s.queueLocked(c, &batch{drop: true, drops: c.drops}, atOnce)
}

// Sink returns the way to write a collection. All Sinks of a collection share their position, so only one may be used at a time.
//
// A Sink writes behind: Replace and Apply return when the change is queued, and Position is what is queued. While too much
// is waiting they block. Position is that of the disk after Open, and falls to 0 when what was queued is lost: the disk
// could not be written, the collection was dropped, collected or found corrupt. Apply is refused then, with an error,
// until a Replace, which writes only what differs. So there is never a gap, however careless the feeder is. A Sink in use,
// also if it is only asked for its Position, counts as a reader: what somebody keeps true does not grow old.
func (s *Store) Sink(id Collection) stream.Sink { return &sink{store: s, id: id} }

// Health says how the disk does. It costs nothing.
func (s *Store) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{Corrupt: s.corrupt, Foreign: s.foreign, Bytes: s.used}
	if s.failure != nil {
		h.Err, h.Since = s.failure.Error(), s.since
	}
	return h
}
