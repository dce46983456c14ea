package hub

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/store"
)

// keeper answers the node's programs: a front.Keeper.
type keeper struct {
	follow.Agents
	reads
}

// reads are a client's: lists and watches from what is followed for it, single reads from what is remembered.
type reads struct {
	followed *follow.Set
	client   string
	answers  *recall.Answers
}

// Serve implements front.Keeper.
func (k reads) Serve(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	k.followed.Serve(w, r, k.client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.answers.Serve(w, r, pass)
	}))
}

func (h *Hub) newKeeper() (*keeper, error) {
	answers, err := h.answers("")
	return &keeper{follow.NewAgents(h.cfg.CacheAgents), reads{h.followed, "", answers}}, err
}

// answers makes what is remembered for a client.
func (h *Hub) answers(client string) (*recall.Answers, error) {
	return recall.New(recall.Config{
		Client: client, Disk: h.disk, Cloud: h.cloud.Link(),
		Followed: func(w http.ResponseWriter, r *http.Request) bool { return h.followed.Get(w, r, client) },
	})
}

// nodesOwn are the collections that the node itself needs to start: no Pod's take their place.
func nodesOwn(id store.ID) bool { return id.Client == "" || id.Client == follow.Hub }

// blobShares divides what the disk has for single answers: churn of one kind, as of Jobs' Pods, takes no place of another's.
var blobShares = map[string]int{
	"answer/": 4 << 20, "guest/": 2 << 20, "caller/": 2 << 20, "access/": 2 << 20, "event/": 2 << 20,
}

// runDisk writes the disk until all that is written has ended, and closes it.
func (h *Hub) runDisk(ctx context.Context) error { return errors.Join(h.disk.Run(ctx), h.closeDisk()) }

// flushCut brings to the disk at once what is known when a link goes down, or the cloud begins to be failing. Nothing new comes
// for a while then, and a hub that starts again during the cut must be no older than what its clients have seen.
func (h *Hub) flushCut(ctx context.Context) error {
	links := []*live.Value[link.State]{h.cloud.Link()}
	if h.pool != nil {
		links = append(links, h.pool.coordinator.Link())
	}
	var each sync.WaitGroup
	for _, l := range links {
		each.Go(func() {
			for state, changed := l.Watch(); ; state, changed = l.Watch() {
				if state == link.Down || state == link.Failing {
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
