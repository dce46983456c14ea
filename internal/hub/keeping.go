package hub

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/copies"
	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/keep"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/saver"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
)

// keeper is what a hub keeps for its node's programs: a front.Keeper.
type keeper struct {
	keep.Agents
	*keep.Set
}

// keptLists bounds the lists that are under way for what is kept. kubelet follows some hundred objects, each by a list of
// its own that costs little but a round trip, and waits for them; one at a time would take half a minute over a WAN, and a
// large list of the pool's before them some minutes.
const keptLists = 8

// unseenFeeds are those of what programs ask for: it has no bound, so it has no place in metrics; /status has it.
func unseenFeeds(as http.RoundTripper) (feeds, error) {
	unseen, err := feed.NewMetrics(prometheus.NewRegistry())
	return feeds{unseen, make(chan struct{}, keptLists), as}, err
}

func (h *Hub) newKeeper() (*keeper, error) {
	own, err := unseenFeeds(h.cloud.AsNode())
	if err != nil {
		return nil, err
	}
	set, err := keep.New(keep.Config{
		Disk: h.disk, Cloud: h.cloud.Link(),
		NewFeed: func(r *replica.Replica, what keep.Selection) (keep.Feed, error) {
			return h.newFeed(own, r, false, what)
		},
		Changed: func() {
			if h.own != nil {
				h.own.Changed()
			}
		},
	})
	return &keeper{keep.NewAgents(h.cfg.CacheAgents), set}, err
}

// nodesOwn are the collections that the node itself needs to start: no Pod's take their place.
func nodesOwn(id store.ID) bool { return id.Client == "" || id.Client == userAgent }

// restore fills the replica of a whole resource from the disk, and returns what keeps the disk up to date.
func (h *Hub) restore(ctx context.Context, r *replica.Replica) copies.Saver {
	// In the hub's own name: a program may have the same selection kept at the same time.
	return h.restoreAs(ctx, store.ID{Client: userAgent, Resource: r.Resource()}, r)
}

// runSaved runs a feed of a replica that is restored from the disk first, and kept there.
func (h *Hub) runSaved(ctx context.Context, id store.ID, r *replica.Replica, feed func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var saving sync.WaitGroup
	defer saving.Wait()
	defer cancel()
	s := h.restoreAs(ctx, id, r)
	saving.Go(func() { s.Run(ctx) })
	return feed(ctx)
}

func (h *Hub) restoreAs(ctx context.Context, id store.ID, r *replica.Replica) *saver.Saver {
	s := saver.New(h.disk, id, r)
	if err := s.Restore(ctx); err != nil && !errors.Is(err, store.ErrMiss) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Reading it anew")
	}
	return s
}

// begun returns when requests can be answered from what the hub has, or when ctx ends. Until then they wait to be
// accepted: what is served before would go to the cloud, and a watch would stay there.
func (h *Hub) begun(ctx context.Context) {
	all := []<-chan struct{}{h.sharing.copies.Begun()}
	if h.keeper != nil {
		all = append(all, h.keeper.Begun())
	}
	for _, each := range all {
		select {
		case <-each:
		case <-ctx.Done():
		}
	}
}

// runDisk writes the disk until all that is written has ended, and closes it.
func (h *Hub) runDisk(ctx context.Context) error { return errors.Join(h.disk.Run(ctx), h.closeDisk()) }

// flushCut brings to the disk at once what is known when a link goes down. It is the last for a while, and a hub that starts
// again during the cut is to be no older than what its clients have seen.
func (h *Hub) flushCut(ctx context.Context) error {
	links := []*live.Value[link.State]{h.cloud.Link()}
	if h.pool != nil {
		links = append(links, h.pool.coordinator.Link())
	}
	var each sync.WaitGroup
	for _, l := range links {
		each.Go(func() {
			for state, changed := l.Watch(); ; state, changed = l.Watch() {
				if state == link.Down {
					_ = h.disk.Flush(ctx) // what cannot be written now is written later
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	each.Wait()
	return nil
}

// diskTime is the disk's clock. Its differences are monotonic, as time.Now's are.
func (h *Hub) diskTime() time.Time { return time.Now().Add(time.Duration(h.diskClock.Load())) }

// countOnline tells the disk when the cloud can be asked: only then does what nobody reads grow old.
func (h *Hub) countOnline(ctx context.Context) error {
	defer h.disk.Online(false)
	for state, changed := h.cloud.Link().Watch(); ; state, changed = h.cloud.Link().Watch() {
		h.disk.Online(state == link.Up)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

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
