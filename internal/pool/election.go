package pool

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
)

// election answers who leads the pool now.
type election struct {
	leases coordinationclient.LeasesGetter
	terms  *terms
}

// newElection returns an election that reads the Lease by client, and judges by c's clock who has lapsed.
func newElection(client coordinationclient.LeasesGetter, c clock.PassiveClock) *election {
	return &election{leases: client, terms: newTerms(c)}
}

// leader returns the election Lease as it is stored; without its holder if that one has lapsed.
func (e *election) leader(ctx context.Context) (leaseMark, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseReadTimeout)
	defer cancel()
	lease, err := e.leases.Leases(edge.NamespaceSystem).Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if err != nil {
		return leaseMark{}, fmt.Errorf("who leads can't be told now: %w", err)
	}
	stored := leaseMark{
		holder:      edge.NodeName(valueOf(lease.Spec.HolderIdentity)),
		transitions: valueOf(lease.Spec.LeaseTransitions),
		renewed:     valueOf(lease.Spec.RenewTime).UnixMicro(),
		term:        seconds(lease.Spec.LeaseDurationSeconds),
	}
	if !e.terms.Live(edge.LeaseElection, stored) {
		stored.holder = ""
	}
	return stored, nil
}

// leads refuses a push by who does not lead, or no longer under the term that it thinks.
func (e *election) leads(ctx context.Context, n edge.NodeName, term int32) error {
	stored, err := e.leader(ctx)
	if err != nil {
		return &refusal{code: http.StatusServiceUnavailable, message: err.Error(), retryAfter: time.Second}
	}
	return decidePush(n, term, stored)
}

// decidePush is the rule: only the live holder of the election Lease pushes, under the transitions that the Lease has.
func decidePush(n edge.NodeName, term int32, leader leaseMark) error {
	switch {
	case leader.holder == "":
		return refused(http.StatusForbidden, "only the leader may push, and nobody holds the Lease %s now", edge.LeaseElection)
	case leader.holder != n:
		return refused(http.StatusForbidden, "only the leader may push, and node %q is the leader", leader.holder)
	case leader.transitions != term:
		return refused(http.StatusForbidden, "the term %d of node %q is over; it leads under term %d now", term, n,
			leader.transitions)
	}
	return nil
}
