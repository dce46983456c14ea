// Package disk is what a hub keeps over a restart: a store in a directory, or a memory for a hub that is given none. It knows
// when all must be written at once, and which time makes old what nobody reads.
package disk

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// shares divides the space for single values: churn of one kind, as of Jobs' Pods, takes no place of another's.
var shares = map[string]int{
	"answer/": 4 << 20, "guest/": 2 << 20, "caller/": 2 << 20, "access/": 2 << 20, "event/": 2 << 20,
}

// Store is where it is kept: a store.Store or a store.Memory.
type Store interface {
	Load(id store.Collection) (stream.Snapshot, error)
	Sink(id store.Collection) stream.Sink
	Drop(id store.Collection)
	Touch(id store.Collection)
	Need(ids []store.Collection)
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	BlobSize(key string) int
	DropBlob(key string)
	Blobs(prefix string) []string
	Online(online bool)
	Health() store.Health
	Flush(ctx context.Context) error
	Run(ctx context.Context) error
	Close() error
}

// Config says where the disk is.
type Config struct {
	// Dir is the directory; empty means that there is none.
	Dir string
	// Ahead is by how much the clock is ahead that collections grow old by; it is for tests.
	Ahead time.Duration
	// Last says which collections go last when space is needed. nil means none.
	Last func(store.Collection) bool
}

// Disk is a hub's. Make one with Open; safe for concurrent use.
type Disk struct {
	Store
	dir   string
	ahead atomic.Int64 // ns
}

// Open opens the directory. Close or Run frees it.
func Open(c Config) (*Disk, error) {
	d := &Disk{dir: c.Dir}
	d.SetAhead(c.Ahead)
	if c.Dir == "" {
		d.Store = store.NewMemory(shares)
		return d, nil
	}
	opened, err := store.Open(store.Config{Dir: c.Dir, Last: c.Last, Now: d.Now, BlobShares: shares})
	if err != nil {
		return nil, err
	}
	d.Store = opened
	return d, nil
}

// SetAhead sets Config.Ahead.
func (d *Disk) SetAhead(by time.Duration) { d.ahead.Store(int64(by)) }

// Now is the disk's clock. Its differences are monotonic, as time.Now's are.
func (d *Disk) Now() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) }

// Run writes until ctx ends and all that is written has ended, and frees the directory.
func (d *Disk) Run(ctx context.Context) error { return errors.Join(d.Store.Run(ctx), d.Close()) }

// Heed follows links until ctx ends. When one goes down, or the cloud begins to be failing, all that is known is written at once:
// nothing new comes for a while then, and a hub that starts again during the cut must be no older than what its clients have
// seen. Only while the cloud can be asked does what nobody reads grow old.
func (d *Disk) Heed(ctx context.Context, cloud *live.Value[link.State], others ...*live.Value[link.State]) error {
	defer d.Online(false)
	var each sync.WaitGroup
	each.Go(func() { heed(ctx, cloud, func(s link.State) { d.Online(s == link.Up) }) })
	for _, l := range slices.Concat([]*live.Value[link.State]{cloud}, others) {
		each.Go(func() {
			heed(ctx, l, func(s link.State) {
				if s == link.Down || s == link.Failing {
					_ = d.Flush(ctx) // what can't be written now is written later
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

// Status is how the disk does.
type Status struct {
	Bytes int64 `json:"bytes"`
	// Error says why the disk can't be written, and Since when; both are absent while it can.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// Corrupt says what was found corrupt when the hub started.
	Corrupt string `json:"corrupt,omitempty"`
}

// Status returns how the disk does; nil means that there is none.
func (d *Disk) Status() *Status {
	if d.dir == "" {
		return nil
	}
	return status(d.Health())
}

func status(h store.Health) *Status {
	s := &Status{Bytes: h.Bytes, Error: h.Err, Corrupt: h.Corrupt}
	if h.Err != "" {
		s.Since = &h.Since
	}
	return s
}
