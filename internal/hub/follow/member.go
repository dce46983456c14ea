package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/follow/save"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
)

// Feed keeps a replica up to date; feed.Feed is one.
type Feed interface {
	// Run feeds until ctx ends and then returns nil; it returns early only on a defect of the program.
	Run(ctx context.Context) error
	Status() *live.Value[feed.Status]
	// Refresh asks for a list where a resume would do, once, if what the replica has is not Fresh. It does not block.
	Refresh()
}

// Order says what a feed is for.
type Order struct {
	Selection
	// Client is whose credentials the cloud is asked with: Hub and the empty one have the node's.
	Client string
	// Shared says that the resource belongs to the pool: its leader pushes it to the coordinator, where others read it.
	Shared bool
	// Replica is what is fed.
	Replica *replica.Replica
	// TooLarge is called when a list has more than fits. It does not block.
	TooLarge func()
}

// Member is a selection that is followed.
type Member struct {
	Order

	feed    Feed
	saver   *save.Saver
	handler *replica.Handler
	kubelet *replica.Handler // what serves kubelet
	view    *View            // nil: clients see the replica as it is

	wanted chan struct{} // closed when somebody needs the content
	want   func()
	after  <-chan struct{} // of the member before it: nothing is restored until that has ended; nil if there was none
	life   context.Context
	end    context.CancelFunc
	// restored is closed when what the disk has of it is there, or when that will not come.
	restored chan struct{}
	ended    chan struct{} // closed when nothing of it is left

	// The set's lock guards these.
	users  int
	unused time.Time // since when, if there are no users
	ending bool
	// denied is since when the cloud, which can be reached, says that the client may not read it; zero means that it does not.
	denied time.Time
	// forget says that what the disk has of it goes when it has ended.
	forget bool
}

// Live reports whether the replica follows the cloud itself at the moment.
func (m *Member) Live() bool {
	s := m.feed.Status().Get()
	return s.Live && s.Source == feed.Cloud
}

// fixed reports whether it stays without users.
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

// run follows from where the disk stands, from when somebody wants it until ctx ends.
func (m *Member) run(ctx context.Context) error {
	restored := sync.OnceFunc(func() { close(m.restored) })
	defer restored() // whoever waits for what will not come is told so
	if m.after != nil {
		<-m.after // it is ending
	}
	select {
	case <-m.wanted:
	case <-ctx.Done():
		return nil
	}
	logger := klog.FromContext(ctx)
	if err := m.saver.Restore(ctx); err != nil && !errors.Is(err, store.ErrMiss) && ctx.Err() == nil {
		logger.Error(err, "Reading it from the cloud")
	}
	restored()
	if !m.fixed() {
		logger.V(1).Info("Following for this node's programs", "what", m.Selection, "revision", m.Replica.Position().String())
	}
	ctx, cancel := context.WithCancel(ctx)
	var saving sync.WaitGroup
	defer saving.Wait()
	defer cancel()
	saving.Go(func() { m.saver.Run(ctx) })
	if err := m.feed.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow %s: %w", m.Selection, err)
	}
	return nil
}

// behind reports whether a request asks for a revision that the replica has not reached.
func (m *Member) behind(r *http.Request) bool {
	revision, err := edge.ParseRevision(r.URL.Query().Get("resourceVersion"))
	return err == nil && revision > m.Replica.Position()
}
