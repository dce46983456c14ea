package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// blobBytes bounds the bytes of all blobs whose keys have the same prefix. A kind with many blobs, such as those about Jobs'
// Pods, therefore displaces no blobs of another kind.
var blobBytes = map[string]int{
	"answer/": 8 << 20, "guest/": 8 << 20, "caller/": 2 << 20, "access/": 2 << 20, "event/": 2 << 20, "": 1 << 20,
}

// Store keeps content.
type Store interface {
	Load(id store.Collection) (stream.Snapshot, error)
	Sink(id store.Collection) stream.Sink
	Drop(id store.Collection)
	Touch(id store.Collection)
	Need(ids []store.Collection, users ...string)
	Keeps() bool
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
	Online(online bool)
	Health() store.Health
	Flush(ctx context.Context) error
	Run(ctx context.Context) error
	Close() error
}

// DiskConfig says where the disk is.
type DiskConfig struct {
	// Dir is the directory; empty means no disk.
	Dir string
	// Ahead advances the clock that collections age by; for tests.
	Ahead time.Duration
	// KeyFile is the file with the key that encrypts secret content. OpenDisk creates a missing file, with mode 0600. The default
	// is Dir with the suffix .key.
	KeyFile string
	// Credentials is systemd's credentials directory ($CREDENTIALS_DIRECTORY). If it has the file yurthub-cache-key, the disk
	// derives the key from that file and does not use KeyFile. Empty means no such directory.
	Credentials string
	// Secret and SecretBlob report which collections and blobs are secret. nil means none.
	Secret     func(store.Collection) bool
	SecretBlob func(key string) bool
	// Prompt says which removed content must not come back after a crash. The zero value means none.
	Prompt store.Prompt
	// Last reports which collections to drop last when space runs out. nil means no preference.
	Last func(store.Collection) bool
	// Clock is this machine's.
	Clock ends.Clock
}

// Disk is a hub's disk. Make one with OpenDisk; safe for concurrent use.
type Disk struct {
	Store
	dir   string
	clock ends.Clock
	ahead atomic.Int64 // ns
}

// OpenDisk opens the directory, and locks it until Close is called or Run returns.
func OpenDisk(c DiskConfig) (*Disk, error) {
	d := &Disk{dir: c.Dir, clock: c.Clock}
	d.SetAhead(c.Ahead)
	if c.Dir == "" {
		d.Store = store.NewMemory(blobBytes)
		return d, nil
	}
	config := store.Config{Dir: c.Dir, Last: c.Last, Now: d.Now, BlobBytes: blobBytes, Prompt: c.Prompt}
	if c.Secret != nil && c.SecretBlob != nil {
		key, err := keyFor(c)
		if err != nil {
			return nil, err
		}
		config.Secrets = store.Secrets{Key: key, Collection: c.Secret, Blob: c.SecretBlob}
	}
	opened, err := store.Open(config)
	if err != nil {
		return nil, err
	}
	d.Store = opened
	return d, nil
}

// SetAhead sets DiskConfig.Ahead.
func (d *Disk) SetAhead(by time.Duration) { d.ahead.Store(int64(by)) }

// Now is the disk's clock. It never steps.
func (d *Disk) Now() time.Time { return d.clock.Running().Add(time.Duration(d.ahead.Load())) }

// Wall is the time of day on this machine, advanced like the disk's clock.
func (d *Disk) Wall() time.Time { return d.clock.Wall().Add(time.Duration(d.ahead.Load())) }

// Run writes until ctx ends and the current write is done, and then releases the directory.
func (d *Disk) Run(ctx context.Context) error { return errors.Join(d.Store.Run(ctx), d.Close()) }

// Heed follows links until ctx ends. When a link goes down or begins to fail, Heed writes everything at once, because a hub that
// restarts during the cut must know what its clients have seen. Heed also tells the disk whether the cloud answers: content that
// nobody reads ages only while the cloud answers.
func (d *Disk) Heed(ctx context.Context, cloud *live.Value[link.State], others ...*live.Value[link.State]) error {
	defer d.Online(false)
	var each sync.WaitGroup
	each.Go(func() { heed(ctx, cloud, func(s link.State) { d.Online(s.Answers()) }) })
	for _, l := range slices.Concat([]*live.Value[link.State]{cloud}, others) {
		each.Go(func() {
			heed(ctx, l, func(s link.State) {
				if s == link.Down || s == link.Failing {
					_ = d.Flush(ctx) // Run writes later what cannot be written now
				}
			})
		})
	}
	each.Wait()
	return nil
}

func heed(ctx context.Context, l *live.Value[link.State], tell func(link.State)) {
	for state, changed := l.Watch(); ; state, changed = l.Watch() {
		tell(state)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// DiskStatus is the state of the disk.
type DiskStatus struct {
	Bytes int64 `json:"bytes"`
	// Error says why the disk cannot be written, Since since when. Both are absent while the disk can be written.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// Corrupt names what was corrupt when the hub started.
	Corrupt string `json:"corrupt,omitempty"`
}

// Status returns the state of the disk; nil means no disk.
func (d *Disk) Status() *DiskStatus {
	if d.dir == "" {
		return nil
	}
	return status(d.Health())
}

// Health returns the store's health with times by the wall clock, for people.
func (d *Disk) Health() store.Health {
	h := d.Store.Health()
	if h.Err != "" {
		h.Since = d.clock.Wall().Add(-d.Now().Sub(h.Since))
	}
	return h
}

func status(h store.Health) *DiskStatus {
	s := &DiskStatus{Bytes: h.Bytes, Error: h.Err, Corrupt: h.Corrupt}
	if h.Err != "" {
		s.Since = &h.Since
	}
	return s
}
