package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

// AnnotationInstance on the election Lease names the process that holds it. The name tells apart processes with the same node
// name: a hub before and after a restart, or a clone that should not exist.
const AnnotationInstance = "openyurt.io/hub-instance"

var (
	errTermOver = errors.New("the election Lease is no longer this term's")
	errNoBase   = errors.New("the election Lease has not been read yet")
	errDoubtful = errors.New("the cloud has not answered for a moment: this hub leaves the election Lease to others")
	errVacant   = errors.New("the election Lease is missing, and its last holder may not know yet")
)

// lock is one campaign's access to the election Lease. It implements resourcelock.Interface. Get waits until there is something
// to decide, and answers from the board, which has what this hub knows of the Lease. Update writes at most one renewal per
// renewEvery. The elector's goroutine calls these methods. The method release, which calls Get, runs after that goroutine has
// ended.
type lock struct {
	leases   coordinationv1client.LeaseInterface
	board    *board
	identity edge.NodeName
	instance string
	fence    *fence
	doubtful func() bool // see ElectorConfig; may be nil
	ends     ends.Ends

	base    *coordinationv1.Lease // as last read or written here: the version that the next write must replace
	suspect bool                  // a write was refused or unanswered: the board may be behind
	told    *coordinationv1.Lease // another hub's Lease, as the elector knows it; nil: nothing to wait for
	wake    time.Time             // when the elector polls again, if told does not change before
	refused time.Time             // when the coordinator last refused to let this hub lead; zero: it has not
	term    *coordinationv1.Lease // as won; nil before
	sent    ends.Moment           // when the last acknowledged write was sent
}

var _ resourcelock.Interface = (*lock)(nil)

// Get returns the record of the Lease, with its duration limited to leaseDuration. If another hub holds the Lease and the elector
// has its record already, Get blocks until the Lease has changed or the holder's time is nearly up.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if !l.refused.IsZero() {
		// The coordinator lets no hub lead yet, or not this one. Its answer says until when, but only in words for people.
		_ = run.Pause(ctx, l.ends.Until(l.refused.Add(refusedPause)))
	}
	lease, known := l.news(ctx)
	if !known || l.suspect {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		fresh, err := l.leases.Get(ctx, edge.LeaseElection, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			fresh = nil
			l.board.gone()
		case err != nil:
			return nil, nil, fmt.Errorf("read the election Lease: %w", err)
		default:
			l.board.post(fresh)
		}
		lease, l.suspect = fresh, false
	}
	if lease == nil {
		l.base = nil
		// A coordinator that came back empty refuses for as long. Without this wait, all hubs would ask it again and again.
		if wait := leaseDuration - l.ends.Since(l.board.since(nil)); wait > 0 {
			return nil, nil, fmt.Errorf("%w: a term may go on for %s", errVacant, wait)
		}
		return nil, nil, apierrors.NewNotFound(
			schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"},
			edge.LeaseElection)
	}
	l.base = lease
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if limit := int(leaseDuration / time.Second); record.LeaseDurationSeconds > limit {
		record.LeaseDurationSeconds = limit
	}
	if other := namesake(lease, l.identity, l.instance); other != "" {
		// Another process has our name: wait for it as for any other holder.
		record.HolderIdentity = other
	}
	if heir := yieldedTo(lease); heir != "" && heir != l.identity {
		record.HolderIdentity = string(heir) + " (to whom it was left)" // wait as long as the record says, from when it was seen
	}
	since, lasts := l.board.since(lease), time.Duration(record.LeaseDurationSeconds)*time.Second
	if !l.ours(lease) && l.ends.Since(since) >= lasts {
		// The elector would count from its first look, when this campaign began. The board got the Lease earlier.
		record.HolderIdentity = ""
	}
	// The elector compares raw with the previous value. Any write counts as a sign of life, even from a holder whose clock stands
	// still.
	raw, err := json.Marshal(struct {
		resourcelock.LeaderElectionRecord
		UID, Revision string
	}{*record, string(lease.UID), lease.ResourceVersion})
	if err != nil {
		return nil, nil, fmt.Errorf("encode the election record: %w", err)
	}
	switch {
	case record.HolderIdentity == "" || l.ours(lease):
		l.told = nil
	case l.told != lease:
		l.told, l.wake = lease, since.Add(lasts-pollMax)
	}
	return record, raw, nil
}

// news waits until the board has something new for the elector, and returns the board's Lease. Without the wait, an idle hub
// would wake up to ten times a second to find another hub's Lease unchanged. news stops waiting pollMax before the end of the
// holder's time, because the elector reads the clock before it calls Get.
func (l *lock) news(ctx context.Context) (lease *coordinationv1.Lease, known bool) {
	lease, known, changed := l.board.watch()
	wait := l.ends.Until(l.wake)
	if lease == nil || lease != l.told || l.suspect || wait <= 0 {
		return lease, known
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	if lease, known = l.board.read(); lease != nil && holder(lease) == "" {
		// The whole pool sees the release at once: spread the hubs' attempts, as polling would.
		_ = run.Pause(ctx, l.ends.Below(retryPeriod))
		lease, known = l.board.read()
	}
	return lease, known
}

// namesake returns a name for the holder of the Lease if the holder is another process under this node's name, otherwise "".
func namesake(lease *coordinationv1.Lease, identity edge.NodeName, instance string) string {
	if holder(lease) == identity && lease.Annotations[AnnotationInstance] != instance {
		return string(identity) + " (process " + lease.Annotations[AnnotationInstance] + ")"
	}
	return ""
}

func holder(lease *coordinationv1.Lease) edge.NodeName {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return edge.NodeName(*lease.Spec.HolderIdentity)
}

// ours reports whether the Lease names this process as its holder.
func (l *lock) ours(lease *coordinationv1.Lease) bool {
	return lease != nil && holder(lease) == l.identity && lease.Annotations[AnnotationInstance] == l.instance
}

// same reports whether the Lease shows that the term that began with won continues.
func (l *lock) same(lease, won *coordinationv1.Lease) bool {
	return l.ours(lease) && lease.UID == won.UID && transitions(lease) == transitions(won)
}

func transitions(lease *coordinationv1.Lease) int32 {
	if lease == nil || lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return *lease.Spec.LeaseTransitions
}

// Create creates the Lease with this hub as its holder. It fails during a term, because the term has ended with the former Lease.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch {
	case l.term != nil:
		return errTermOver
	case l.doubts():
		return errDoubtful
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: edge.LeaseElection},
	}
	return l.write(ctx, lease, record, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.leases.Create(ctx, lease, metav1.CreateOptions{})
	})
}

// Update writes the record over the Lease as last read. It skips a renewal within renewEvery of the last one.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch {
	case l.base == nil:
		return errNoBase
	case l.term != nil && !l.same(l.base, l.term):
		return errTermOver
	case l.term != nil && l.ends.Since(l.sent.Running) < renewEvery:
		return nil
	case l.term == nil && l.doubts():
		return errDoubtful
	}
	lease := l.base.DeepCopy()
	return l.write(ctx, lease, record, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.leases.Update(ctx, lease, metav1.UpdateOptions{})
	})
}

// doubts reports whether this hub must not take a term now.
func (l *lock) doubts() bool { return l.doubtful != nil && l.doubtful() }

func (l *lock) write(ctx context.Context, lease *coordinationv1.Lease, record resourcelock.LeaderElectionRecord,
	send func(context.Context) (*coordinationv1.Lease, error),
) error {
	record.RenewTime = metav1.NewTime(l.ends.Wall()) // the elector's is of another clock
	if l.term == nil {
		record.AcquireTime = record.RenewTime
	} else {
		record.AcquireTime = metav1.Time(*l.term.Spec.AcquireTime)
	}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	delete(lease.Annotations, edge.AnnotationYieldedTo)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationInstance, l.instance)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	sent := l.ends.Now() // before the request: the term is never thought younger than it is
	l.suspect = true
	written, err := send(ctx)
	if l.refused = (time.Time{}); apierrors.IsForbidden(err) {
		l.refused = l.ends.Running()
	}
	if err != nil {
		return fmt.Errorf("write the election Lease: %w", err)
	}
	l.base, l.sent, l.suspect = written, sent, false
	if l.term == nil {
		l.term = written
	}
	l.board.post(written)
	l.fence.acknowledge(LeaseRevision(written), sent)
	return nil
}

// release gives up the Lease if this process holds it, so that another hub can take it without waiting. If heir is set, only the
// heir's hub can take it during yieldWait. If a write got no answer, release reads the Lease first, because the write may have
// taken effect.
func (l *lock) release(ctx context.Context, heir edge.NodeName) error {
	for attempt := 0; ; attempt++ {
		if l.suspect {
			if _, _, err := l.Get(ctx); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("release the election Lease; others take over in %s: %w", leaseDuration, err)
			}
		}
		if !l.ours(l.base) {
			return nil
		}
		lease := l.base.DeepCopy()
		now := metav1.NewMicroTime(l.ends.Wall())
		nobody, second := "", int32(1)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &nobody, &second
		lease.Spec.RenewTime, lease.Spec.AcquireTime = &now, &now
		delete(lease.Annotations, AnnotationInstance)
		if heir != "" {
			lease.Spec.LeaseDurationSeconds = new(int32(yieldWait / time.Second))
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationYieldedTo, string(heir))
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationYielded, edge.FormatYielded(now.Time))
		}
		released, err := l.leases.Update(ctx, lease, metav1.UpdateOptions{})
		if err == nil {
			l.board.post(released)
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == 1 {
			return fmt.Errorf("release the election Lease; others take over in %s: %w", leaseDuration, err)
		}
		l.suspect = true
	}
}

// Identity returns the node's name.
func (l *lock) Identity() string { return string(l.identity) }

// Describe names the Lease in the elector's messages.
func (l *lock) Describe() string { return edge.NamespaceSystem + "/" + edge.LeaseElection }

// RecordEvent does nothing: a pool's coordinator keeps no Events about elections.
func (l *lock) RecordEvent(string) {}

// board has what this hub knows of the election Lease, from the coordinator's stream and from its own reads and writes. It
// announces changes.
type board struct {
	clock ends.Clock

	mu      sync.Mutex
	lease   *coordinationv1.Lease // nil: there is none
	known   bool                  // false: nothing has been read yet
	put     time.Time             // when lease was put up
	changed chan struct{}
}

func newBoard(c ends.Clock) *board { return &board{clock: c, changed: make(chan struct{})} }

// read returns the Lease, which callers must not change, and whether anything is known about it.
func (b *board) read() (*coordinationv1.Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lease, b.known
}

// watch returns the same as read, and a channel that is closed at the next change.
func (b *board) watch() (*coordinationv1.Lease, bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lease, b.known, b.changed
}

// post stores what was read or written, unless the board has a newer version of the same Lease.
func (b *board) post(lease *coordinationv1.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lease == nil || b.lease.UID != lease.UID || LeaseRevision(b.lease) < LeaseRevision(lease) {
		b.setLocked(lease, true)
	}
}

// gone records that there is no Lease.
func (b *board) gone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(nil, true)
}

// since returns when the board got this version of the Lease, or the present time if it has another. A nil lease means none.
func (b *board) since(lease *coordinationv1.Lease) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lease != lease {
		return b.clock.Running()
	}
	return b.put
}

func (b *board) setLocked(lease *coordinationv1.Lease, known bool) {
	if b.lease == lease && b.known == known {
		return
	}
	b.lease, b.known, b.put = lease, known, b.clock.Running()
	close(b.changed)
	b.changed = make(chan struct{})
}

// quiet returns ctx with a logger that drops the elector's messages. The elector logs each failed attempt as an error, up to ten
// times a second.
func quiet(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.Logger{})
}
