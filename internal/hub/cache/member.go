package cache

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
)

// Feeder keeps a replica up to date; Feed is one.
type Feeder interface {
	// Run feeds the replica until ctx ends.
	Run(ctx context.Context)
	Status() *live.Value[FeedStatus]
	// Refresh requests one list where a resume would do, unless the replica's content is Fresh. It does not block.
	Refresh()
	// Filling returns the number, from 1, of the page at which a list from the cloud is. FillsNext means that a list waits
	// until other lists are done. 0 means that there is no list in pages.
	Filling() int
}

// Order specifies a feed.
type Order struct {
	Selection
	// Client is the client whose credentials the feed reads the cloud with. Hub and the empty client use the node's.
	Client string
	// Shared says that the resource belongs to the pool: its leader pushes it to the coordinator, where the other hubs read it.
	Shared bool
	// Replica is the replica to feed.
	Replica *replica.Replica
	// TooLarge is called when a list exceeds the client's budget. It must not block.
	TooLarge func()
}

// Member is one selection that the hub follows.
type Member struct {
	Order

	feed    Feeder
	saver   *Saver
	handler *replica.Handler
	kubelet *replica.Handler // serves kubelet
	view    *View            // nil means that clients see the replica as it is

	wanted chan struct{} // closed when somebody needs the content
	want   func()
	after  <-chan struct{} // closed when the previous member has ended, which run waits for; nil if there was none
	life   context.Context
	end    context.CancelFunc
	// restored is closed when the disk's content is in the replica, or will not come.
	restored chan struct{}
	ended    chan struct{} // closed when all of its goroutines have returned

	// The set's lock guards these.
	users  int
	unused time.Time // since when, if there are no users
	ending bool
	// denied is the time since which a reachable cloud has denied the client this selection; zero means that it does not.
	denied time.Time
	// forget says to drop the selection's content from the disk after its end.
	forget bool
}

// Live reports whether the replica now follows the cloud itself.
func (m *Member) Live() bool {
	s := m.feed.Status().Get()
	return s.Live && s.Source == Cloud
}

// Filling returns the number of the page under way of a list from the cloud; see Feeder.
func (m *Member) Filling() int { return m.feed.Filling() }

// fixed reports whether the member stays even without users.
func (m *Member) fixed() bool { return m.Client == Hub }

func (m *Member) id() store.Collection { return m.Selection.id(m.Client) }

func (m *Member) isWanted() bool {
	select {
	case <-m.wanted:
		return true
	default:
		return false
	}
}

// run waits until the content is wanted, then restores it from the disk and follows from there until ctx ends.
func (m *Member) run(ctx context.Context) {
	restored := sync.OnceFunc(func() { close(m.restored) })
	defer restored() // nobody must wait for what will not come
	if m.after != nil {
		<-m.after // it is ending, so this does not take long
	}
	select {
	case <-m.wanted:
	case <-ctx.Done():
		return
	}
	logger := klog.FromContext(ctx)
	if err := m.saver.Restore(ctx); err != nil && !errors.Is(err, store.ErrMiss) && ctx.Err() == nil {
		logger.Error(err, "The disk's content cannot be used; reading from the cloud")
	}
	restored()
	if !m.fixed() {
		logger.V(1).Info("Following for this node's programs", "what", m.Selection, "revision", m.Replica.Position().String())
	}
	var saving sync.WaitGroup
	defer saving.Wait()
	saving.Go(func() { m.saver.Run(ctx) })
	m.feed.Run(ctx)
}

// behind reports whether a request asks for a revision that the replica has not reached.
func (m *Member) behind(r *http.Request) bool {
	revision, err := edge.ParseRevision(r.URL.Query().Get("resourceVersion"))
	own, _ := revision.Own() // a view may have shown it
	return err == nil && own > m.Replica.Position()
}
