package lead

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// reportEvery is how often the reporter looks for something to say: half of the shortest time between two heartbeats.
	reportEvery = 5 * time.Second
	// sayEvery is how often the reporter repeats a report that has not changed, unless Config says.
	sayEvery = time.Minute
	// hubsEvery is with how many reports the cloud is told once how the hubs are, while they are as before: it is half of what
	// a report of a small pool says.
	hubsEvery = 5
	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
)

// ReporterConfig says who reports. All fields but Every are required.
type ReporterConfig struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Cloud is a client of the cloud with the pool's forwarding identity, which must be allowed to get, update and create
	// the Leases that edge.PoolName.ReportLease names in kube-node-lease (see internal/cloud/forwarding).
	Cloud coordinationv1client.LeasesGetter
	// Every returns how often to repeat a report that has not changed; nil means each minute. The cloud believes in a report for
	// two and a half times as long.
	Every func() time.Duration
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Source is a coordinator where this hub leads.
type Source struct {
	Slot edge.Slot
	// Leases is a client of the coordinator. The hub must be allowed to list and watch the Leases in kube-node-lease there.
	Leases coordinationv1client.LeasesGetter
	// Fillings returns how far the coordinator has each resource that the pool shares; nil means that nobody knows. A nil
	// function means the same.
	Fillings func() map[string]edge.Filling
}

// Reporter reports what this hub hears at the coordinators where it leads.
type Reporter struct {
	cfg ReporterConfig

	mu    sync.Mutex
	books map[edge.Slot]*followed // of the terms under way
}

// NewReporter returns a Reporter.
func NewReporter(cfg ReporterConfig) *Reporter {
	return &Reporter{cfg: cfg, books: map[edge.Slot]*followed{}}
}

// Lines returns what nodes say of their links to the cloud, of those that renew at the coordinator in a slot and whose link is
// up. Where this hub does not lead there is nothing.
func (r *Reporter) Lines(slot edge.Slot, now time.Time) map[edge.NodeName]edge.Line {
	r.mu.Lock()
	book := r.books[slot]
	r.mu.Unlock()
	if book == nil {
		return nil
	}
	return book.lines(now)
}

// keep adds the book of a slot, until it is asked to end that.
func (r *Reporter) keep(slot edge.Slot, book *followed) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.books[slot] = book
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.books, slot)
	}
}

// from returns the books of a slot and of those above it, in order; nil if this hub leads at a lower one.
func (r *Reporter) from(slot edge.Slot) (all []*followed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range edge.Slots() {
		switch book := r.books[s]; {
		case book == nil:
		case s < slot:
			return nil
		default:
			all = append(all, book)
		}
	}
	return all
}

// report is what there is to tell the cloud.
type report struct {
	// nodes are those that renew.
	nodes []edge.NodeName
	// traffic, kubelets and versions are what they say of their links, of how their kubelets are known, and of their hubs.
	traffic  map[edge.NodeName]edge.Traffic
	kubelets map[edge.NodeName]edge.KubeletWay
	versions map[edge.NodeName]string
	// hubs is what their hubs say of themselves, and lines of their links.
	hubs  map[edge.NodeName]edge.HubReport
	lines map[edge.NodeName]edge.Line
	// fillings says how far the coordinator has what the pool shares; nil means that nobody knows.
	fillings map[string]edge.Filling
	// together is how the hubs are together; nil means that the cloud is not told this time.
	together *edge.PoolHubs
}

// and returns the report with what is heard at the coordinator of a higher slot, too. Of a node that both hear, r counts.
func (r report) and(above report) report {
	r.nodes = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.nodes, above.nodes))))
	r.traffic, r.kubelets = joined(above.traffic, r.traffic), joined(above.kubelets, r.kubelets)
	r.versions, r.hubs = joined(above.versions, r.versions), joined(above.hubs, r.hubs)
	r.lines = joined(above.lines, r.lines)
	return r
}

func joined[T any](all, over map[edge.NodeName]T) map[edge.NodeName]T {
	maps.Copy(all, over)
	return all
}

// differs reports whether the cloud is to be told at once. More traffic is no reason, and neither is what hubs say of
// themselves: for that nobody waits.
func (r report) differs(told report) bool {
	return !slices.Equal(r.nodes, told.nodes) || !maps.Equal(r.kubelets, told.kubelets) ||
		!maps.Equal(r.versions, told.versions) || !maps.Equal(r.fillings, told.fillings)
}

// Run has what is heard at one coordinator reported for one term, until ctx ends; then it returns nil. It reports in the Lease of
// this slot while it is the lowest of those that run. It must not run twice at a time for a slot.
func (r *Reporter) Run(ctx context.Context, from Source, term edge.Term) error {
	book := &followed{clock: r.cfg.Ends.Clock, found: make(chan struct{})}
	defer r.keep(from.Slot, book)()
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		// Beating, so that a dead watch is noticed before a Lease of Kubernetes' default length runs out.
		follow := LeaseWatchConfig{Leases: from.Leases.Leases(corev1.NamespaceNodeLease), Beating: true, Ends: r.cfg.Ends}
		_ = FollowLeases(ctx, follow, book) // it returns only the end of ctx
	})
	var speaks *speaker
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	waitFor(ctx, book.found)
	for ; ctx.Err() == nil; waitFor(ctx, ticker.C) {
		books := r.from(from.Slot)
		if books == nil {
			speaks = nil
			continue
		}
		if speaks == nil {
			// The first pause ends before the next look; the longest is about sayEvery.
			speaks = &speaker{Reporter: r, from: from, term: term,
				pauses: run.Backoff{Min: reportEvery * 3 / 4, Max: sayEvery * 3 / 2}}
		}
		now := r.cfg.Ends.Running()
		said, ok := books[0].reached(now)
		for _, above := range books[1:] {
			heard, _ := above.reached(now)
			said = said.and(heard)
		}
		speaks.look(ctx, said, ok, now)
	}
	return nil
}

// speaker reports in the Lease of one slot.
type speaker struct {
	*Reporter
	from Source
	term edge.Term

	last       report
	carried    tally
	reports    int                   // since how the hubs are was told
	lease      *coordinationv1.Lease // as it was written last; nil: it is to be read
	told, next time.Time             // when last was told, zero: never; and after a failure, when to try again
	promised   time.Duration         // after which the cloud was told to expect the next report
	pauses     run.Backoff
}

// look reports what there is to say, if that is due. ok is false if it is too early to tell.
func (s *speaker) look(ctx context.Context, said report, ok bool, now time.Time) {
	s.carried.count(said.hubs)
	if s.from.Fillings != nil {
		said.fillings = s.from.Fillings()
	}
	every := s.every()
	due := s.told.IsZero() || now.Sub(s.told) >= min(every, s.promised) || said.differs(s.last)
	if !ok || !due || now.Before(s.next) || !s.term.Valid() {
		return
	}
	hubs := together(said.hubs, said.lines, s.carried.sum, s.cfg.Ends.Wall())
	hubs.Term = s.term.Transitions
	if s.reports%hubsEvery == 0 || !alike(hubs, s.last.together) {
		said.together, s.reports = &hubs, 0
	}
	var err error
	if s.lease, err = s.tell(ctx, said, every); err != nil {
		klog.FromContext(ctx).V(1).Info("Cannot tell the cloud who reaches the coordinator", "err", err)
		s.next = now.Add(s.pauses.Next(s.cfg.Ends.Float64()))
		return
	}
	if said.together == nil {
		said.together = s.last.together
	}
	s.last, s.told, s.promised, s.reports = said, now, every, s.reports+1
	s.pauses.Reset()
}

// every returns how often to repeat a report that has not changed.
func (r *Reporter) every() time.Duration {
	if r.cfg.Every == nil {
		return sayEvery
	}
	return r.cfg.Every()
}

func waitFor[T any](ctx context.Context, event <-chan T) {
	select {
	case <-event:
	case <-ctx.Done():
	}
}

// followed holds the beats that a watch writes and the reporter reads: a LeaseSink.
type followed struct {
	clock ends.Clock
	found chan struct{} // closed with the first baseline
	once  sync.Once

	mu    sync.Mutex
	beats beats
}

// Baseline implements LeaseSink.
func (f *followed) Baseline(leases []coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats.observe(leases, f.clock.Running())
	f.once.Do(func() { close(f.found) })
}

// Changed implements LeaseSink.
func (f *followed) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats.change(kind, lease, f.clock.Running())
}

// lines returns what nodes say of their links.
func (f *followed) lines(now time.Time) map[edge.NodeName]edge.Line {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beats.lines(now)
}

// reached returns the nodes that are seen to renew, and what they say; false if it is too early to tell of all.
func (f *followed) reached(now time.Time) (report, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes, ok := f.beats.reached(now)
	return report{
		nodes: nodes, traffic: f.beats.traffic(nodes), kubelets: f.beats.kubelets(nodes), versions: f.beats.versions(nodes),
		hubs: f.beats.hubs(nodes), lines: f.beats.lines(now),
	}, ok
}

// tell writes the report over what was written last, and returns what is written now. Nobody else writes while this hub leads; if
// somebody did, the cloud refuses. nil means that it is to be read first. tell creates a missing Lease by PUT: RBAC cannot allow
// a POST for one name only.
func (s *speaker) tell(ctx context.Context, said report, every time.Duration) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	lease, name := s.lease, s.cfg.Pool.ReportLease(s.from.Slot)
	leases := s.cfg.Cloud.Leases(corev1.NamespaceNodeLease)
	if lease == nil {
		var err error
		if lease, err = leases.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: corev1.NamespaceNodeLease, Name: name,
				Labels: map[string]string{edge.LabelNodePool: string(s.cfg.Pool)},
			}}
		} else if err != nil {
			return nil, fmt.Errorf("get Lease %s: %w", name, err)
		}
	}
	maps.DeleteFunc(lease.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, edge.PrefixReports) })
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationReachedNodes, edge.JoinNodes(said.nodes))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationTraffic, edge.JoinTraffic(said.traffic))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationKubelet, edge.JoinKubelets(said.kubelets))
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationHubVersion, edge.JoinVersions(said.versions))
	if said.together == nil {
		delete(lease.Annotations, edge.AnnotationHubs)
	} else {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationHubs, said.together.String())
	}
	if said.fillings == nil {
		delete(lease.Annotations, edge.AnnotationPoolResources) // another leader may have left it
	} else {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationPoolResources, edge.JoinFillings(said.fillings))
	}
	lease.ManagedFields = Unmanaged(lease)
	lease.Spec.HolderIdentity = ptr.To(string(s.cfg.Node))
	lease.Spec.LeaseTransitions = ptr.To(s.term.Transitions)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(2 * every / time.Second))
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(s.cfg.Ends.Wall()))
	written, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil, errors.New("somebody else has just written it") // another leader did: this hub will soon learn of it
	} else if err != nil {
		return nil, fmt.Errorf("write Lease %s: %w", name, err)
	}
	return written, nil
}
