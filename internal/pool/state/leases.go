package state

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
)

// leases are Leases as they are stored, by name.
type leases struct {
	number *live.Value[uint64] // of the last change, from 1 on: 0 is before all

	mu   sync.Mutex
	all  map[string]numbered[*coordinationv1.Lease]
	gone uint64 // the number of the last deletion
}

func newLeases() *leases {
	return &leases{number: live.NewValue[uint64](1), all: map[string]numbered[*coordinationv1.Lease]{}, gone: 1}
}

// change notes a Lease that was written or deleted.
func (l *leases) change(lease *coordinationv1.Lease, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number := l.number.Get() + 1
	l.all[lease.Name] = numbered[*coordinationv1.Lease]{number, lease}
	if deleted {
		delete(l.all, lease.Name)
		l.gone = number
	}
	l.number.Set(number)
}

// holder returns who holds a Lease.
func (l *leases) holder(name string) edge.NodeName {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease := l.all[name].is; lease != nil && lease.Spec.HolderIdentity != nil {
		return edge.NodeName(*lease.Spec.HolderIdentity)
	}
	return ""
}

// since returns the changes that follow the change with the given number, and the number of the last one. It returns all Leases
// if the number is 0, or if a Lease was deleted after that change.
func (l *leases) since(number uint64) (*edge.Leases, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := &edge.Leases{Whole: number < l.gone}
	var changed []numbered[*coordinationv1.Lease]
	for _, lease := range l.all {
		if said.Whole || lease.number > number {
			changed = append(changed, lease)
		}
	}
	slices.SortFunc(changed, func(a, b numbered[*coordinationv1.Lease]) int { return cmp.Compare(a.number, b.number) })
	for _, lease := range changed {
		said.Leases = append(said.Leases, *lease.is)
	}
	return said, l.number.Get()
}

// Follow follows the Leases that an informer has. The informer has not begun yet.
func (p *Server) Follow(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(func(o any) (any, error) {
		if lease, ok := o.(*coordinationv1.Lease); ok {
			lease.ManagedFields = nil
		}
		return o, nil
	}); err != nil {
		return fmt.Errorf("slim the copy of Leases: %w", err)
	}
	followed, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.stored(o, false) },
		UpdateFunc: func(_, o any) { p.stored(o, false) },
		DeleteFunc: func(o any) {
			if final, unseen := o.(cache.DeletedFinalStateUnknown); unseen {
				o = final.Obj
			}
			p.stored(o, true)
		},
	})
	if err != nil {
		return fmt.Errorf("follow Leases: %w", err)
	}
	p.follows = followed.HasSynced
	return nil
}

func (p *Server) stored(o any, deleted bool) {
	lease, ok := o.(*coordinationv1.Lease)
	switch {
	case !ok:
	case lease.Namespace == corev1.NamespaceNodeLease:
		p.heartbeats.change(lease, deleted)
	case lease.Namespace == edge.NamespaceSystem && (lease.Name == edge.LeaseElection || lease.Name == edge.LeaseInformerSync):
		p.leases.change(lease, deleted)
	}
}
