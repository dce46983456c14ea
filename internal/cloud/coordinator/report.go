package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// report records when the report of a pool's leader was last seen to change. The report is valid for edge.ReportLasts from then
// on, by this program's clock. An older report says nothing about the present.
type report struct {
	version string
	seen    time.Time
}

// told is what a pool's leaders say together.
type told struct {
	// outside are the nodes of the pool that reach none of its coordinators, sorted.
	outside []string
	// kubelets says how the others' kubelets are known.
	kubelets *kubelets
	// fillings says how far the coordinator of the lowest slot has what the pool shares; nil means that nobody knows.
	fillings fillings
	// until is when to look again at the latest.
	until time.Time
}

// reported returns what the leaders of a pool with these nodes say of it. Without a valid report nobody knows anything.
func (r *Reconciler) reported(ctx context.Context, pool edge.PoolName, nodes []edge.NodeName) (told, error) {
	now := r.cfg.Clock.Now()
	said := told{until: now.Add(edge.ReportLasts(nil))} // a report that comes before is a change that is watched
	var valid []*coordinationv1.Lease
	for _, slot := range edge.Slots() {
		lease, until, err := r.report(ctx, pool.ReportLease(slot), now)
		if err != nil {
			return told{}, err
		}
		if now.Before(until) {
			valid = append(valid, lease)
			if len(valid) == 1 || until.Before(said.until) {
				said.until = until
			}
		}
	}
	if len(valid) == 0 {
		return said, nil
	}
	all := edge.ReportsOf(valid)
	reached, ways := all.Reached(), all.Kubelets()
	said.fillings = all.Fillings()
	if ways != nil {
		said.kubelets = &kubelets{ways: ways}
	}
	for _, n := range nodes {
		switch {
		case !slices.Contains(reached, n):
			said.outside = append(said.outside, string(n))
		case ways != nil:
			said.kubelets.reached = append(said.kubelets.reached, n)
		}
	}
	return said, nil
}

// report returns a report, and until when it is valid; the zero time if there is none.
func (r *Reconciler) report(ctx context.Context, name string, now time.Time) (*coordinationv1.Lease, time.Time, error) {
	var lease coordinationv1.Lease
	err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, time.Time{}, fmt.Errorf("read Lease %s: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.reports, name)
		return nil, time.Time{}, nil
	}
	last := r.reports[name]
	if last.version != lease.ResourceVersion {
		last = report{lease.ResourceVersion, now}
		r.reports[name] = last
	}
	return &lease, last.seen.Add(edge.ReportLasts(lease.Spec.LeaseDurationSeconds)), nil
}

// reports returns the pool of which a Lease is a report; empty means that it is none.
func reports(lease *coordinationv1.Lease) edge.PoolName {
	pool, _ := edge.ReportOf(lease.Name)
	if _, reported := lease.Annotations[edge.AnnotationReachedNodes]; !reported {
		return ""
	}
	return pool
}
