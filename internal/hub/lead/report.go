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
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// reportEvery is how often the reporter checks for changes: half of the shortest time between two heartbeats.
	reportEvery = 5 * time.Second
	// sayEvery is how often the reporter repeats an unchanged report, unless ReporterConfig.Every is set.
	sayEvery = time.Minute
	// hubsEvery says that only every fifth report carries an unchanged sum about hubs. The sum is half of a small pool's report.
	hubsEvery = 5
	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
)

// ReporterConfig configures a Reporter. All fields but Every are required.
type ReporterConfig struct {
	Node edge.NodeName
	Pool edge.PoolName
	// Cloud is a client of the cloud with the pool's forwarding identity. This identity must be allowed to get, update and create
	// the Leases that edge.PoolName.ReportLease names in kube-node-lease (internal/cloud/forwarding grants that).
	Cloud coordinationv1client.LeasesGetter
	// Every returns how often to repeat an unchanged report; nil means each minute. The cloud trusts a report for two and a
	// half times that interval.
	Every func() time.Duration
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Source is a coordinator where this hub leads.
type Source struct {
	Slot edge.Slot
	// Beats returns the heartbeats that the coordinator has told of, by name, and since when (State.Beats).
	Beats func() (all []Heartbeat, since time.Time)
	// Fillings returns how far the coordinator has each shared resource. A nil map, or a nil function, means unknown.
	Fillings func() map[string]edge.Filling
}

// Reporter reports to the cloud what this hub sees at the coordinators where it leads.
type Reporter struct {
	cfg ReporterConfig

	mu    sync.Mutex
	beats map[edge.Slot]func() ([]Heartbeat, time.Time) // of the terms under way
}

// NewReporter returns a Reporter.
func NewReporter(cfg ReporterConfig) *Reporter {
	return &Reporter{cfg: cfg, beats: map[edge.Slot]func() ([]Heartbeat, time.Time){}}
}

// Lines returns the lines of the nodes that renew at a slot's coordinator and have a link to the cloud, as these nodes report
// them. It returns nil if this hub does not lead there.
func (r *Reporter) Lines(slot edge.Slot, now time.Time) map[edge.NodeName]edge.Line {
	r.mu.Lock()
	beats := r.beats[slot]
	r.mu.Unlock()
	if beats == nil {
		return nil
	}
	all, since := beats()
	said, _ := reached(all, since, now)
	return said.lines
}

// leads adds a slot. end removes it.
func (r *Reporter) leads(from Source) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beats[from.Slot] = from.Beats
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.beats, from.Slot)
	}
}

// sees returns what this hub sees at the coordinators in a slot and above it, merged into one report. ok is false if it is too
// early to know about all nodes of the slot. If this hub also leads at a lower slot, said is nil, because that slot's report has
// everything.
func (r *Reporter) sees(slot edge.Slot, now time.Time) (said *report, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range edge.Slots() {
		beats := r.beats[s]
		if beats == nil {
			continue
		}
		if s < slot {
			return nil, false
		}
		all, since := beats()
		seen, known := reached(all, since, now)
		if said == nil {
			said, ok = &seen, known
		} else {
			*said = said.and(seen)
		}
	}
	return said, ok
}

// report is the content of a report to the cloud.
type report struct {
	// nodes are the nodes that renew.
	nodes []edge.NodeName
	// traffic, kubelets and versions are the nodes' traffic, the ways to verify their kubelets, and the releases of their hubs.
	traffic  map[edge.NodeName]edge.Traffic
	kubelets map[edge.NodeName]edge.KubeletWay
	versions map[edge.NodeName]string
	// hubs are the hubs' reports about themselves, and lines those about their links.
	hubs  map[edge.NodeName]edge.HubReport
	lines map[edge.NodeName]edge.Line
	// fillings says how far the coordinator has each shared resource; nil means unknown.
	fillings map[string]edge.Filling
	// together is the sum about hubs; nil means that this report does not carry it.
	together *edge.PoolHubs
}

// and returns the report merged with that of a higher slot. For a node in both, r counts.
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

// differs reports whether to tell the cloud at once. Changes of traffic and of the hubs' reports about themselves are not urgent.
func (r report) differs(told report) bool {
	return !slices.Equal(r.nodes, told.nodes) || !maps.Equal(r.kubelets, told.kubelets) ||
		!maps.Equal(r.versions, told.versions) || !maps.Equal(r.fillings, told.fillings)
}

// Run reports what this hub sees at one coordinator for one term. It returns nil when ctx ends. It writes to the Lease of this
// coordinator's slot, but only while no Run of a lower slot is active. Only one Run per slot may be active at a time.
func (r *Reporter) Run(ctx context.Context, from Source, term edge.Term) error {
	defer r.leads(from)()
	var speaks *speaker
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for ; ctx.Err() == nil; waitFor(ctx, ticker.C) {
		now := r.cfg.Ends.Running()
		said, ok := r.sees(from.Slot, now)
		if said == nil {
			speaks = nil
			continue
		}
		if speaks == nil {
			// The first pause ends before the next look. The longest is 90 s.
			speaks = &speaker{Reporter: r, from: from, term: term,
				pauses: run.Backoff{Min: reportEvery * 3 / 4, Max: sayEvery * 3 / 2}}
		}
		speaks.reportIfDue(ctx, *said, ok, now)
	}
	return nil
}

// speaker writes the report of one slot.
type speaker struct {
	*Reporter
	from Source
	term edge.Term

	last       report
	carried    tally
	reports    int                   // reports since the last that carried the sum about hubs
	lease      *coordinationv1.Lease // as it was written last; nil: it is to be read
	told, next time.Time             // when last was told, zero: never; and after a failure, when to try again
	promised   time.Duration         // after which the cloud was told to expect the next report
	pauses     run.Backoff
}

// reportIfDue writes the report if it is due. ok is false if it is too early to know about all nodes.
func (s *speaker) reportIfDue(ctx context.Context, said report, ok bool, now time.Time) {
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
	if s.lease, err = s.writeReport(ctx, said, every); err != nil {
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

// every returns how often to repeat an unchanged report.
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

// writeReport writes the report over the Lease as last written, and returns the new version. It fails if another hub has written
// the Lease since. After a failure it returns no Lease, so the next call reads the Lease first. It creates a missing Lease by
// PUT, because RBAC cannot allow a POST for one name only.
func (s *speaker) writeReport(ctx context.Context, said report, every time.Duration) (*coordinationv1.Lease, error) {
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
