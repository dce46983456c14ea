package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// reportLasts is how long a leader's report is valid, by this program's clock since it saw the report change. The
// leader renews it each minute, and it says that it is valid for two. An older report says nothing about now.
const reportLasts = 150 * time.Second

// report is the last change seen in a pool's report.
type report struct {
	version string
	seen    time.Time
}

// outside returns the nodes of a pool that do not reach its coordinator, sorted, as the pool's leader reports, and when
// to look again at the latest. Without a valid report nobody knows, and the list is empty.
func (r *Reconciler) outside(ctx context.Context, pool edge.PoolName, nodes []edge.NodeName) ([]string, time.Time, error) {
	var lease coordinationv1.Lease
	now := r.cfg.Clock.Now()
	err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: pool.ReportLease()}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return nil, time.Time{}, fmt.Errorf("read Lease %s: %w", pool.ReportLease(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.reports, pool)
		return nil, now.Add(reportLasts), nil
	}
	last := r.reports[pool]
	if last.version != lease.ResourceVersion {
		last = report{lease.ResourceVersion, now}
		r.reports[pool] = last
	}
	until := last.seen.Add(reportLasts)
	if !now.Before(until) {
		return nil, now.Add(reportLasts), nil // the next report is a change that is watched
	}
	reached := edge.SplitNodes(lease.Annotations[edge.AnnotationReachedNodes])
	var names []string
	for _, n := range nodes {
		if !slices.Contains(reached, n) {
			names = append(names, string(n))
		}
	}
	return names, until, nil
}

// reports returns the pool whose report a Lease is; empty means that it is none.
func reports(lease *coordinationv1.Lease) edge.PoolName {
	pool, ok := strings.CutPrefix(lease.Name, edge.PoolName("").ReportLease())
	if _, reported := lease.Annotations[edge.AnnotationReachedNodes]; !ok || !reported {
		return ""
	}
	return edge.PoolName(pool)
}
