package lead

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// requestTimeout bounds one list. The server is on the LAN, and the list covers one pool.
	requestTimeout = 5 * time.Second

	// watchMin and watchMax bound how long the server keeps one watch. If a watch's connection died unnoticed, this ends it after
	// watchMax+watchGrace: well within Kubernetes' default grace period for nodes, 50 s.
	watchMin = 20 * time.Second
	watchMax = 30 * time.Second
	// watchGrace is how long a server may take to end a watch after its time limit.
	watchGrace = 3 * time.Second

	// beatingMin and beatingMax replace these bounds for a watch of LeaseWatchConfig.Beating Leases. Such a watch counts as dead
	// after watchQuiet without a change. Each resume costs two requests: at one per half minute, resumes were a quarter of the
	// requests that a pool of 40 sends to its coordinator.
	beatingMin = 2 * time.Minute
	beatingMax = 3 * time.Minute
	watchQuiet = watchMin

	// shortLife is how long a watch without events must last to count as working.
	shortLife = time.Second

	// watchBackoffMin and watchBackoffMax bound the pause after a failure; see run.Backoff.
	watchBackoffMin = 100 * time.Millisecond
	watchBackoffMax = 2 * time.Second
)

// errQuiet says that a watch of Beating Leases brought nothing.
var errQuiet = errors.New("no Lease was renewed: nobody renews one, or the watch is dead")

// errRelist says that the server has forgotten the watch's revision.
var errRelist = errors.New("the watch cannot be resumed")

// LeaseSink receives what FollowLeases finds. FollowLeases calls one method at a time, and waits while it blocks. The sink owns
// the Leases.
type LeaseSink interface {
	// Baseline replaces all that is known: these Leases exist, but the time of their last write is unknown.
	Baseline(leases []coordinationv1.Lease)
	// Changed reports one change that the watch saw: watch.Added, Modified or Deleted, relative to the selectors.
	Changed(kind watch.EventType, lease *coordinationv1.Lease)
}

// LeaseWatchConfig says what to follow.
type LeaseWatchConfig struct {
	// Leases is the namespace to follow, at the server that has it.
	Leases coordinationv1client.LeaseInterface
	// LabelSelector and FieldSelector limit what is followed; empty means everything.
	LabelSelector, FieldSelector string
	// Beating says that these Leases are normally renewed every few seconds, so that silence means a dead watch.
	Beating bool
	// Heard is called for every event of a watch, bookmarks included, before the sink gets it. nil means no call.
	Heard func()
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// LeaseRevision returns a Lease's resourceVersion as a number, which orders the writes of one server. It returns 0 if there is
// none, or if it is not a number.
func LeaseRevision(lease *coordinationv1.Lease) uint64 { return parseRevision(lease.ResourceVersion) }

func parseRevision(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// FollowLeases lists, then watches, and retries after failures until ctx ends. It returns the context's cause.
func FollowLeases(ctx context.Context, c LeaseWatchConfig, sink LeaseSink) error {
	logger := klog.FromContext(ctx)
	var position uint64 // of the last change heard or bookmark; 0 before the first baseline
	pause := run.Backoff{Min: watchBackoffMin, Max: watchBackoffMax}
	for ctx.Err() == nil {
		next, heard, err := c.once(ctx, position, sink)
		position = next
		if heard {
			pause.Reset()
		}
		if err == nil && ctx.Err() == nil {
			continue // an orderly end of one watch: resume at once
		}
		wait := pause.Next(c.Ends.Float64())
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errRelist):
			logger.V(2).Info("Listing Leases again", "reason", err)
			position = 0
		default:
			logger.V(1).Info("Watch of Leases broke, trying again", "err", err, "pause", wait)
		}
		_ = run.Pause(ctx, wait) // the loop above sees that ctx ended
	}
	return context.Cause(ctx)
}

// once lists, or checks that the server still has position, and watches from there. It returns the position that it reached,
// whether the watch worked, and a nil error if the watch ended in an orderly way.
func (c LeaseWatchConfig) once(ctx context.Context, position uint64, sink LeaseSink) (uint64, bool, error) {
	if position == 0 {
		list, err := c.list(ctx, 0)
		if err != nil {
			return 0, false, err
		}
		position = parseRevision(list.ResourceVersion)
		if position == 0 {
			return 0, false, fmt.Errorf("list of Leases has the resourceVersion %q, which is no revision",
				list.ResourceVersion)
		}
		sink.Baseline(list.Items)
	} else {
		list, err := c.list(ctx, 1)
		if err != nil {
			return position, false, err
		}
		if reaches := parseRevision(list.ResourceVersion); reaches < position {
			err := fmt.Errorf("%w: the server is at revision %d, this watch was at %d: the server started anew",
				errRelist, reaches, position)
			return position, false, err
		}
	}
	began := c.Ends.Running()
	reached, err := c.watch(ctx, position, sink)
	lived := reached > position || c.Ends.Since(began) >= shortLife
	if err == nil && !lived {
		err = errors.New("watch Leases: the server ended the watch at once")
	}
	return reached, lived, err
}

// limit returns how long the server should keep a watch.
func (c LeaseWatchConfig) limit() time.Duration {
	if c.Beating {
		return beatingMin + c.Ends.Below(beatingMax-beatingMin)
	}
	return watchMin + c.Ends.Below(watchMax-watchMin)
}

func (c LeaseWatchConfig) list(ctx context.Context, limit int64) (*coordinationv1.LeaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.Leases.List(ctx, metav1.ListOptions{
		LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector, Limit: limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list Leases: %w", err)
	}
	return list, nil
}

func (c LeaseWatchConfig) watch(ctx context.Context, position uint64, sink LeaseSink) (uint64, error) {
	limit := c.limit()
	seconds := int64(limit / time.Second)
	// We set a deadline because a dead connection does not end by itself. It also bounds the wait for the first answer.
	ctx, cancel := context.WithTimeout(ctx, limit+watchGrace)
	defer cancel()
	heard := func() {}
	if c.Beating {
		beating, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		silence := time.AfterFunc(watchQuiet, func() { stop(errQuiet) })
		defer silence.Stop()
		ctx, heard = beating, func() { silence.Reset(watchQuiet) }
	}
	w, err := c.Leases.Watch(ctx, metav1.ListOptions{
		LabelSelector: c.LabelSelector, FieldSelector: c.FieldSelector,
		ResourceVersion: strconv.FormatUint(position, 10), AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return position, watchError(err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return position, fmt.Errorf("watch Leases: %w", context.Cause(ctx))
		case event, open := <-w.ResultChan():
			if !open {
				return position, nil
			}
			heard()
			if c.Heard != nil {
				c.Heard()
			}
			if event.Type == watch.Error {
				return position, watchError(apierrors.FromObject(event.Object))
			}
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok {
				return position, fmt.Errorf("watch Leases: %s event holds a %T, not a Lease", event.Type, event.Object)
			}
			revision := LeaseRevision(lease)
			if revision <= position && event.Type != watch.Bookmark {
				// A change at or before the position was heard already, or precedes the baseline.
				continue
			}
			position = max(position, revision)
			switch event.Type {
			case watch.Added, watch.Modified, watch.Deleted:
				sink.Changed(event.Type, lease)
			}
		}
	}
}

func watchError(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return fmt.Errorf("%w: %w", errRelist, err)
	}
	return fmt.Errorf("watch Leases: %w", err)
}

// Unmanaged returns the managedFields for an update of a Lease: one empty entry if the API server keeps any for it, otherwise
// nil. The empty entry makes the API server drop them, and record none for the object until somebody applies it. Without the
// entry it keeps those that it has, and sends them with each answer.
func Unmanaged(known *coordinationv1.Lease) []metav1.ManagedFieldsEntry {
	if len(known.ManagedFields) == 0 {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{}}
}
