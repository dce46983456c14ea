package lead

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

// errUnreachable ends the watch of the election Lease.
var errUnreachable = errors.New("the coordinator can no longer be reached")

// observe updates the board from a watch on the election Lease, while the coordinator can be reached, until ctx ends.
func (k *Elector) observe(ctx context.Context) {
	follow := LeaseWatchConfig{
		Leases:        k.config.Leases.Leases(edge.NamespaceSystem),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", edge.LeaseElection).String(),
		Beating:       true, Ends: k.config.Ends,
	}
	for ctx.Err() == nil {
		if _, err := k.config.Coordinator.Wait(ctx, link.State.Answers); err != nil {
			return
		}
		reachable, stop := k.config.Coordinator.While(ctx, link.State.Answers, errUnreachable)
		_ = FollowLeases(reachable, follow, notice{k.board}) // it returns only the end of its context
		stop()
		k.board.forget()
	}
}

// notice writes the watch's findings to the board.
type notice struct{ board *board }

// Baseline implements LeaseSink.
func (n notice) Baseline(leases []coordinationv1.Lease) {
	if len(leases) == 0 {
		n.board.gone()
		return
	}
	n.board.post(&leases[0])
}

// Changed implements LeaseSink.
func (n notice) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	revision := LeaseRevision(lease)
	if kind == watch.Deleted {
		lease = nil
	}
	n.board.change(lease, revision)
}
