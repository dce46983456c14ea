package cache

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Sink is what a Feed feeds; replica.Replica is one. A Feed uses it from one goroutine at a time.
type Sink interface {
	stream.Sink
	// Snapshot returns all that it has.
	Snapshot(ctx context.Context) (stream.Snapshot, error)
	// History is the one that its position counts in.
	History() edge.History
	// Get returns one object.
	Get(key stream.Key) (stream.Object, bool)
	// Stats has the number of objects.
	Stats() replica.Stats
}

// FeedConfig is what a Feed needs. All fields are required unless it says otherwise.
type FeedConfig struct {
	// Resource is the resource that is fed; logs and metrics name it.
	Resource schema.GroupVersionResource
	Sink     Sink
	// Cloud is the resource at the cloud, CloudLink the state of the link there.
	Cloud interface {
		stream.Source
		Prover
	}
	CloudLink *live.Value[link.State]
	// Pages, if not nil, gives the cloud's lists in pages, so that a list that breaks off goes on where it stood. nil means that
	// lists are read whole: what is selected is small, and API servers search all objects for the first page of it.
	Pages Pages
	// Coordinator is the mirror of the resource in the coordinator. Default: there is no coordinator, and the fields
	// below that are about it are ignored.
	Coordinator     Mirror
	CoordinatorLink *live.Value[link.State]
	// Standing is this hub's place in its pool.
	Standing *live.Value[lead.Standing]
	// Covered says that the leader keeps the mirror of this resource current (Coverage.Of).
	Covered *live.Value[bool]
	// Filling says that the leader is reading this resource from the cloud (Coverage.Filling). nil means never.
	Filling *live.Value[bool]
	// CoveredHistory is the history that the mirror counts in while it is covered (Coverage.History).
	CoveredHistory *live.Value[edge.History]
	// Lists has room for as many elements as lists over the WAN may be under way at a time: 1, in a channel that all
	// feeds of a hub share.
	Lists chan struct{}
	// Precious: losing objects that still exist does more harm than keeping them for half a minute after they are gone. A list
	// that would remove more than half of them is doubted, however few they are, if the cloud's watch has shown them within
	// preciousFor. (Not for longer: a node that was away may have lost its Pods to others meanwhile.)
	Precious bool
	// History says which history the cloud is in.
	History History
	Metrics *FeedMetrics
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// History follows the cloud's history; HistoryKeeper is one.
type History interface {
	State() *live.Value[HistoryState]
	// Saw takes in a witness that the cloud showed, Prove one that came from elsewhere and is to be resumed at the
	// cloud.
	Saw(Witness)
	Prove(Witness)
	// Shaken takes in that a stream of the cloud broke.
	Shaken()
	// Raise takes in that there is a later history.
	Raise(edge.History)
}

// Mirror is a source whose content may belong to another history; remote.Source is one.
type Mirror interface {
	stream.Source
	// WatchIn is Watch for a revision of one history. It also returns the revision that the source has reached, 0 if it does
	// not say, and fails with stream.ErrExpired if the source is in another history.
	WatchIn(ctx context.Context, in edge.History, after edge.Revision) (stream.Watch, edge.Revision, error)
}

// NewFeed returns a Feed. It does no I/O.
func NewFeed(c FeedConfig) *Feed {
	if c.Coordinator == nil {
		c.CoordinatorLink, c.Standing, c.Covered = live.NewValue(link.Down), &live.Value[lead.Standing]{}, &live.Value[bool]{}
		c.CoveredHistory, c.Filling = &live.Value[edge.History]{}, nil
	}
	if c.Filling == nil {
		c.Filling = &live.Value[bool]{}
	}
	return &Feed{
		config: c, status: &live.Value[FeedStatus]{}, refresh: make(chan struct{}, 1), newest: Witness{From: c.Cloud},
	}
}
