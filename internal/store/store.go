package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// ErrMiss says that the disk does not have what was asked for. The error that wraps it says why: it was never stored, it
// was dropped, it was found corrupt, or the disk cannot be read.
var ErrMiss = errors.New("not on the disk")

// ErrUnwritable says that the disk can't be written now: it is full, read-only or broken. Nothing was queued, and Position is 0.
// The caller goes on from memory, and tries Replace again later.
var ErrUnwritable = errors.New("the disk cannot be written")

// ErrIncomplete says that changes were offered to a Sink whose Position is 0: it needs a Replace first.
var ErrIncomplete = errors.New("changes without what they change: Replace first")

// ErrOlder says that a Snapshot is older than what is held: of an earlier history, or of the same and an earlier revision.
var ErrOlder = errors.New("the snapshot is older than what is held")

// ErrFull says that something does not fit within the store's bounds. That is a collection or a blob that alone is too large, or
// a collection that the store removed a short time ago to make space.
var ErrFull = errors.New("no space left within the store's bounds")

// ErrLocked says that another process has the directory open.
var ErrLocked = errors.New("another process has the store open")

// ErrClosed says that the store has been closed.
var ErrClosed = errors.New("the store is closed")

// Collection names the objects of one list or watch of one client.
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

// key names what the log has a state of: a collection, or else a blob.
type key struct {
	Collection
	blob string
}

func (k key) String() string {
	if k.blob != "" {
		return fmt.Sprintf("blob %.40q", k.blob)
	}
	return k.Collection.String()
}

const usualMaxBytes, usualQueueBytes, usualFlushEvery = 256 << 20, 16 << 20, time.Second

// Config is what a Store needs.
type Config struct {
	// Dir is the directory, which belongs to the store alone. It is made if need be, with mode 0700. Required.
	Dir string
	// BlobBytes bounds each kind of blobs, in bytes: keys, values and 1 KiB for each blob. A kind is the beginning of a key,
	// including the first slash; "" stands for all other kinds. nil means 16 MiB for all kinds together.
	BlobBytes map[string]int
	// Last says which collections go last when space is needed, whenever they were read. nil means none.
	Last func(Collection) bool
	// Secrets says what is encrypted. The zero value means nothing.
	Secrets Secrets
	// Prompt says what must not come back after a crash once it has been removed. The zero value means nothing.
	Prompt Prompt
	// Now returns the time of day. Only the differences of its results count. With time.Now these are right even when the
	// machine's clock is set. nil means time.Now.
	Now func() time.Time

	// The bounds below are for tests; 0 means what is usual.

	// maxBytes bounds the collections and blobs on disk. The file has at most twice as many bytes, and 4 MiB more. The
	// collections read least recently go first.
	maxBytes int64
	// queueBytes bounds the objects that wait to be written; Sinks block beyond it.
	queueBytes int64
	// flushEvery is how long a change waits, so that others are written with it. A collection that keeps changing waits up to 15
	// times as long. A crash costs the changes of that time.
	flushEvery time.Duration
}

// Prompt says which removals are on the disk within 3 s, however many other changes wait. Otherwise the removed objects could
// come back after a crash, and would be believed. Other removals wait like the changes around them, 15 s at most. A nil function
// means none.
type Prompt struct {
	Collection func(Collection) bool
	Blob       func(key string) bool
}

func (p Prompt) of(k key) bool {
	if k.blob != "" {
		return p.Blob != nil && p.Blob(k.blob)
	}
	return p.Collection != nil && p.Collection(k.Collection)
}

// Health is how the disk does.
type Health struct {
	// Err says why the disk cannot be written, and since when; empty while it can.
	Err   string
	Since time.Time
	// Corrupt says what was found corrupt since the store was opened; empty if nothing was.
	Corrupt string
	// Torn is how many bytes of an incomplete last batch were cut off the end of the file. A power cut during a write leaves such
	// a batch.
	Torn int64
	// Foreign is how many collections and blobs were removed because they were encrypted with another encryption key.
	Foreign int
	// Bytes is how many bytes on disk are in use.
	Bytes int64
}

// Store is a hub's disk. All methods are safe for concurrent use; each Sink is used by one goroutine at a time.
type Store struct {
	config   Config
	vault    *vault
	seed     maphash.Seed  // of the sums of blobs
	fault    faults        // of tests
	lock     *os.File      // the directory, locked
	writing  chan struct{} // whose token it is to write: it is taken out by who has it
	waiting  chan struct{} // something waits to be written
	diskless bool          // see NewMemory

	mu        sync.Mutex
	closed    bool
	log       *log   // nil: the disk cannot be read
	failure   error  // why the disk cannot be written
	health    Health // but for Err and Since
	since     time.Time
	entries   map[key]*entry
	asked     asked
	collected time.Duration       // when what is old was collected last, by asked
	needed    map[Collection]bool // never collected; nil until somebody has said what is needed
	users     map[string]bool     // whose collections are not collected for their age
	queued    int64               // bytes that wait or are being written, but for blobs
	room      chan struct{}       // closed when there is less in the queue
	blobBytes map[string]int      // kind → of all that will be on disk
	blobPace  pace
	puts      uint64 // how often PutBlob was called
	live      int64  // bytes that a compaction would leave, about

	compactFrom int64 // compaction has failed: the size of the file from which on it is tried again. For who has the token.
}

func newStore(c Config, fault faults) *Store {
	c.maxBytes, c.queueBytes = cmp.Or(c.maxBytes, usualMaxBytes), cmp.Or(c.queueBytes, usualQueueBytes)
	c.flushEvery = cmp.Or(c.flushEvery, usualFlushEvery)
	if c.BlobBytes == nil {
		c.BlobBytes = map[string]int{"": usualBlobBytes}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{
		config: c, seed: maphash.MakeSeed(), fault: fault, writing: make(chan struct{}, 1), waiting: make(chan struct{}, 1),
		entries: map[key]*entry{}, room: make(chan struct{}), blobBytes: map[string]int{},
	}
	s.writing <- struct{}{}
	return s
}

// NewMemory returns a Store for a hub without a directory. It keeps blobs, up to blobBytes, until the process ends. Of a
// collection it keeps only the position of its Sink.
func NewMemory(blobBytes map[string]int) *Store {
	s := newStore(Config{BlobBytes: blobBytes}, nil)
	s.diskless = true
	return s
}

// Keeps reports whether a collection can be loaded later: false for NewMemory's Store.
func (s *Store) Keeps() bool { return !s.diskless }

// Open opens a directory and verifies all that is in it. It cuts off an incomplete last batch, which a power cut may leave, and
// drops what is corrupt; Health says what was found. If the disk can't be written or read, Open does not fail: Health says so,
// and Run tries again. Open fails if the directory can't be made or opened, and with ErrLocked if another process has it. The
// caller must call Close.
func Open(c Config) (*Store, error) { return open(c, nil) }

func open(c Config, fault faults) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("store: Config.Dir is empty")
	}
	hidden, err := newVault(c.Secrets)
	if err != nil {
		return nil, err
	}
	lock, err := openDir(c.Dir)
	if err != nil {
		return nil, err
	}
	s := newStore(c, fault)
	s.vault, s.lock = hidden, lock
	if err := s.reopen(); err != nil {
		s.setFailureLocked(err) // nobody else knows s yet
	}
	for _, e := range s.entries {
		if e.state != nil {
			e.at = e.state.last.moment
		}
	}
	s.collected = s.asked.total
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

// unlockDir releases the lock before it closes the directory. Every copy of the descriptor holds the lock, and a child process
// has a copy from its fork until it executes its program. During that time, closing alone would leave the directory locked.
func unlockDir(dir *os.File) error {
	unlocked := unix.Flock(int(dir.Fd()), unix.LOCK_UN)
	return errors.Join(unlocked, dir.Close())
}

// reopen opens and verifies the file anew, and takes over what it finds there. An error says why the disk can't be written. The
// caller must have the token to write, or be the only one that knows s.
func (s *Store) reopen() error {
	old, synced := s.log, int64(0)
	if old != nil {
		synced = old.end
	}
	log, found, err := openLog(s.config.Dir, s.vault, synced, s.fault)
	s.mu.Lock()
	s.log = log
	s.adoptLocked(found)
	s.mu.Unlock()
	old.close()
	if err == nil && (found.corrupt != nil || found.foreign > 0) {
		if err = s.compact(); err != nil {
			err = fmt.Errorf("keep what is intact of the store: %w", err)
		}
	}
	return err
}

// adoptLocked takes over what a scan has found. If a Sink's position has been lost, it stays lost, even if the disk has the
// state. So a caller that goes on as if nothing had happened is refused.
func (s *Store) adoptLocked(found *found) {
	h := &s.health
	if found.corrupt != nil {
		h.Corrupt = strings.Join(found.corrupt, "; ")
	}
	h.Torn, h.Foreign = max(h.Torn, found.torn), max(h.Foreign, found.foreign)
	s.asked.total = max(s.asked.total, found.clock)
	for k, e := range s.entries {
		if e.state != nil && found.states[k] == nil {
			e.state, e.at.Revision, e.why = nil, 0, cmp.Or(h.Corrupt, e.why)
		}
	}
	for k, state := range found.states {
		e := s.entries[k]
		if e == nil {
			e = s.entryLocked(k)
			e.read = min(state.read(), s.asked.total)
		}
		if e.gone {
			continue // it has yet to be removed
		}
		e.state, e.sum = state, 0
		if moment := state.last.moment; e.at != moment {
			e.at = edge.Moment{History: max(e.at.History, moment.History)}
		}
	}
	s.measureLocked()
}

// entryLocked returns the entry of a key, and makes one if there is none.
func (s *Store) entryLocked(k key) *entry {
	e := s.entries[k]
	if e == nil {
		e = &entry{why: cmp.Or(s.health.Corrupt, "never stored")}
		e.pace = &e.own
		if k.blob != "" {
			e.pace = &s.blobPace
		}
		s.entries[k] = e
	}
	return e
}

// measureLocked finds out how many bytes are in use.
func (s *Store) measureLocked() {
	s.health.Bytes, s.live = 0, 0
	clear(s.blobBytes)
	for k, e := range s.entries {
		s.blobBytes[s.kindOf(k)] += e.cost(k)
		if e.state != nil {
			s.health.Bytes += e.state.bytes
			s.live += e.state.base
		}
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
	if s.diskless {
		return nil
	}
	release, err := s.token(context.Background())
	if err != nil {
		return nil // it is closed
	}
	defer release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.log.close()
	s.roomLocked()
	return unlockDir(s.lock)
}

// roomLocked wakes the callers that wait for room in the queue.
func (s *Store) roomLocked() {
	close(s.room)
	s.room = make(chan struct{})
}

// Load reads a collection as of the last flush, without changes that still wait. The collection counts as read. Load fails with
// ErrMiss and a reason. One reason is that a Sink of this process got a newer state than the disk has, because writing failed.
func (s *Store) Load(id Collection) (stream.Snapshot, error) {
	all, err := s.read(key{Collection: id})
	if err != nil {
		return stream.Snapshot{}, fmt.Errorf("%s: %w: %w", id, ErrMiss, err)
	}
	s.Touch(id)
	return all, nil
}

// read reads a key's state, without a lock against the writer, which never changes what it has written. If another file has
// replaced this one meanwhile, read reads that file. If a frame has gone bad since it was verified, Run verifies the whole file
// again.
func (s *Store) read(k key) (stream.Snapshot, error) {
	for {
		log, state, err := s.find(k)
		if err != nil {
			return stream.Snapshot{}, err
		}
		all, err := log.load(state)
		if err == nil || !s.suspect(log, err) {
			return all, err
		}
	}
}

// find says where a key's state is.
func (s *Store) find(k key) (*log, *state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	switch {
	case s.closed:
		return nil, nil, ErrClosed
	case s.diskless:
		return nil, nil, errors.New("there is no disk")
	case s.log == nil:
		return nil, nil, s.failure
	case e == nil:
		return nil, nil, errors.New(cmp.Or(s.health.Corrupt, "never stored"))
	case e.state == nil:
		return nil, nil, errors.New(e.why)
	case e.at.Revision == 0 && e.state.last.moment.Before(e.told):
		return nil, nil, fmt.Errorf("the disk has an older state: of %s, there was %s", e.state.last.moment, e.told)
	}
	return s.log, e.state, nil
}

// suspect notes that a file has gone bad since it was verified. It returns true if it has only been replaced.
func (s *Store) suspect(log *log, err error) (replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != log && !s.closed {
		return true
	}
	if s.failure == nil && !s.closed {
		s.failLocked(err)
		signal(s.waiting)
	}
	return false
}

// Drop removes a collection. Load misses from now on; the disk follows with the next flush.
func (s *Store) Drop(id Collection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(key{Collection: id}, "dropped")
}

// Health says how the disk does. It costs nothing.
func (s *Store) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.health
	if s.failure != nil {
		h.Err, h.Since = s.failure.Error(), s.since
	}
	return h
}
