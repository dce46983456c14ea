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

// report is the last change seen in a pool's report. It is valid for as long as edge.ReportLasts says, by this program's clock
// since it was seen. An older one says nothing about now.
type report struct {
	version string
	seen    time.Time
}

// told is what a pool's leader says.
type told struct {
	// outside are the nodes of the pool that do not reach its coordinator, sorted.
	outside []string
	// kubelets says how the others' kubelets are known.
	kubelets *kubelets
	// fillings says how far the coordinator has what the pool shares; nil means that nobody knows.
	fillings fillings
	// until is when to look again at the latest.
	until time.Time
}

// reported returns what the leader of a pool with these nodes says of it. Without a valid report nobody knows anything.
func (r *Reconciler) reported(ctx context.Context, pool edge.PoolName, nodes []edge.NodeName) (told, error) {
	var lease coordinationv1.Lease
	now := r.cfg.Clock.Now()
	err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: pool.ReportLease()}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return told{}, fmt.Errorf("read Lease %s: %w", pool.ReportLease(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.reports, pool)
		return told{until: now.Add(edge.ReportLasts(nil))}, nil
	}
	last := r.reports[pool]
	if last.version != lease.ResourceVersion {
		last = report{lease.ResourceVersion, now}
		r.reports[pool] = last
	}
	lasts := edge.ReportLasts(lease.Spec.LeaseDurationSeconds)
	until := last.seen.Add(lasts)
	if !now.Before(until) {
		return told{until: now.Add(lasts)}, nil // the next report is a change that is watched
	}
	return tells(&lease, nodes, until), nil
}

// tells reads a valid report.
func tells(lease *coordinationv1.Lease, nodes []edge.NodeName, until time.Time) told {
	said := told{until: until}
	reached := edge.SplitNodes(lease.Annotations[edge.AnnotationReachedNodes])
	ways, ofKubelets := lease.Annotations[edge.AnnotationKubelet]
	if ofKubelets {
		said.kubelets = &kubelets{ways: edge.SplitKubelets(ways)}
	}
	if text, ok := lease.Annotations[edge.AnnotationPoolResources]; ok {
		said.fillings = edge.SplitFillings(text)
	}
	for _, n := range nodes {
		switch {
		case !slices.Contains(reached, n):
			said.outside = append(said.outside, string(n))
		case ofKubelets:
			said.kubelets.reached = append(said.kubelets.reached, n)
		}
	}
	return said
}

// reports returns the pool whose report a Lease is; empty means that it is none.
func reports(lease *coordinationv1.Lease) edge.PoolName {
	pool, ok := strings.CutPrefix(lease.Name, edge.PoolName("").ReportLease())
	if _, reported := lease.Annotations[edge.AnnotationReachedNodes]; !ok || !reported {
		return ""
	}
	return edge.PoolName(pool)
}
