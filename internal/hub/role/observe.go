package role

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/leasewatch"
	"yurtcoordinator/internal/hub/link"
)

// observe keeps the board by a watch on the election Lease, while the coordinator is reachable, until ctx ends.
func (k *Elector) observe(ctx context.Context) {
	follow := leasewatch.Config{
		Leases:        k.config.Leases.Leases(edge.NamespaceSystem),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", edge.LeaseElection).String(),
		Beating:       true,
	}
	for {
		if _, err := k.config.Coordinator.Wait(ctx, up); err != nil {
			return
		}
		reachable, cancel := context.WithCancel(ctx)
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			_ = leasewatch.Follow(reachable, follow, notice{k.board}) // it returns only our own cancellation
		}()
		_, err := k.config.Coordinator.Wait(ctx, down)
		cancel()
		<-followed
		k.board.forget()
		if err != nil {
			return
		}
	}
}

func up(s link.State) bool   { return s == link.Up }
func down(s link.State) bool { return s != link.Up }

// notice puts what a watch finds on the board.
type notice struct{ board *board }

// Baseline implements leasewatch.Sink.
func (n notice) Baseline(leases []coordinationv1.Lease) {
	for i := range leases {
		if leases[i].Name == edge.LeaseElection {
			n.board.post(&leases[i])
			return
		}
	}
	n.board.gone()
}

// Changed implements leasewatch.Sink.
func (n notice) Changed(kind watch.EventType, lease *coordinationv1.Lease) {
	if lease.Name != edge.LeaseElection {
		return
	}
	revision := leasewatch.Revision(lease)
	if kind == watch.Deleted {
		lease = nil
	}
	n.board.change(lease, revision)
}
