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

// Sink takes what a Feed reads; replica.Replica is one. A Feed uses it from one goroutine at a time.
type Sink interface {
	stream.Sink
	// Snapshot returns all of the sink's content.
	Snapshot(ctx context.Context) (stream.Snapshot, error)
	// History is the history that Position belongs to.
	History() edge.History
	// Get returns one object.
	Get(key stream.Key) (stream.Object, bool)
	// Stats has the number of objects.
	Stats() replica.Stats
}

// FeedConfig configures a Feed. All fields are required unless they say otherwise.
type FeedConfig struct {
	// Resource is the resource to feed; logs and metrics name it.
	Resource schema.GroupVersionResource
	Sink     Sink
	// Cloud reads the resource at the cloud; CloudLink is the state of the link to the cloud.
	Cloud interface {
		stream.Source
		Prover
	}
	CloudLink *live.Value[link.State]
	// Pages reads the cloud's lists in pages, so that a list that breaks off continues after its last page. nil means that the
	// feed reads lists whole. That is better with selectors: to find the first page, an API server may search all objects of the
	// resource.
	Pages Pages
	// Coordinator is the resource's mirror at the coordinator. nil means that there is no coordinator; the feed then ignores the
	// fields from CoordinatorLink to CoveredHistory.
	Coordinator     Mirror
	CoordinatorLink *live.Value[link.State]
	// Standing is this hub's place in its pool.
	Standing *live.Value[lead.Standing]
	// Covered reports whether the leader keeps the mirror of this resource current (Coverage.Of).
	Covered *live.Value[bool]
	// Filling reports whether the leader is reading this resource from the cloud (Coverage.Filling). nil means never.
	Filling *live.Value[bool]
	// CoveredHistory is the history of the mirror's content while the mirror is covered (Coverage.History).
	CoveredHistory *live.Value[edge.History]
	// Lists bounds, by its capacity, how many lists over the WAN run at a time. Feeds with the same channel share the bound.
	Lists chan struct{}
	// Precious makes the feed doubt a list that would remove more than half of the objects, even of few objects. It counts until
	// preciousFor after the end of the last watch of the cloud that worked. A later list may well be right, because the cloud may
	// have moved the node's Pods elsewhere.
	Precious bool
	// History returns what follows the cloud's history for this feed. The feed uses it while it runs, and then calls its Leave.
	History func() History
	Metrics *FeedMetrics
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// History follows what one resource shows of the cloud's history; ResourceHistory is one.
type History interface {
	State() *live.Value[HistoryState]
	// Saw records a Witness that the cloud showed. Prove records one that came from the disk or the pool, before the feed resumes
	// the Witness's collection at the cloud.
	Saw(Witness)
	Prove(Witness)
	// Shaken records that a stream from the cloud broke.
	Shaken()
	// Raise records that a later history exists.
	Raise(edge.History)
	// Leave ends the use of the History.
	Leave()
}

// Mirror is a source whose content may belong to another history; remote.Source is one.
type Mirror interface {
	stream.Source
	// WatchIn is Watch after a revision of the given history. It also returns the revision that the source has reached; 0 means
	// unknown. It fails with stream.ErrExpired if the source is in another history.
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
