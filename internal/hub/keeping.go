package hub

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/keep"
	"yurtcoordinator/internal/hub/saver"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
)

// keeper is what a hub keeps for its node's programs.
type keeper struct {
	agents keep.Agents
	set    *keep.Set
}

// Match implements front.Keeper.
func (k *keeper) Match(r *http.Request) bool { return k.agents.Match(r) }

// Serve implements front.Keeper.
func (k *keeper) Serve(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	k.set.Serve(w, r, pass)
}

func (h *Hub) newKeeper() (*keeper, error) {
	set, err := keep.New(keep.Config{
		Disk: h.disk, Cloud: h.cloud.Link(),
		NewFeed: func(r *replica.Replica, what keep.Selection) (keep.Feed, error) {
			return h.newFeed(h.sharing, r, false, what)
		},
	})
	return &keeper{keep.NewAgents(h.cfg.CacheAgents), set}, err
}

// restore fills the replica of a whole resource from the disk, and returns what keeps the disk up to date.
func (h *Hub) restore(ctx context.Context, r *replica.Replica) func(context.Context) {
	id := store.ID{Resource: r.Resource()}
	if err := saver.Restore(ctx, h.disk, id, r); err != nil && !errors.Is(err, store.ErrMiss) {
		klog.FromContext(ctx).Error(err, "Reading it anew")
	}
	return func(ctx context.Context) { saver.Run(ctx, h.disk, id, r) }
}

// runDisk writes the disk until all that is written has ended, and closes it.
func (h *Hub) runDisk(ctx context.Context) error { return errors.Join(h.disk.Run(ctx), h.closeDisk()) }

func (h *Hub) closeDisk() error {
	if h.disk == nil {
		return nil
	}
	return h.disk.Close()
}

// DiskStatus is how the disk's cache does.
type DiskStatus struct {
	Bytes int64 `json:"bytes"`
	// Error says why the disk cannot be written, and Since when; absent while it can.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// Corrupt says what was found corrupt when the hub started.
	Corrupt string `json:"corrupt,omitempty"`
}

func diskStatus(h store.Health) *DiskStatus {
	s := &DiskStatus{Bytes: h.Bytes, Error: h.Err, Corrupt: h.Corrupt}
	if h.Err != "" {
		s.Since = &h.Since
	}
	return s
}
