package access

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
)

// Election answers who leads the pool now.
type Election struct {
	leases  coordinationclient.LeasesGetter
	terms   *terms
	vacancy *vacancy

	declared *Declared
}

// NewElection returns the election at a coordinator that has just started, where nobody may lead for edge.ElectionTerm.
func NewElection(client coordinationclient.LeasesGetter, c ends.Clock) *Election {
	return &Election{leases: client, terms: newTerms(c), vacancy: newVacancy(c), declared: newDeclared(c)}
}

// Declared returns what the leader says is current here.
func (e *Election) Declared() *Declared { return e.declared }

// leader returns the stored election Lease, without its holder if that has lapsed.
func (e *Election) leader(ctx context.Context) (leaseMark, error) {
	return e.holder(ctx, edge.LeaseElection)
}

// holder returns one of the pool's Leases as it is stored, without its holder if that has lapsed.
func (e *Election) holder(ctx context.Context, name string) (leaseMark, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseReadTimeout)
	defer cancel()
	lease, err := e.leases.Leases(edge.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return leaseMark{}, fmt.Errorf("can't tell who holds the Lease %s: %w", name, err)
	}
	stored := leaseMark{
		holder:      edge.NodeName(valueOf(lease.Spec.HolderIdentity)),
		transitions: valueOf(lease.Spec.LeaseTransitions),
		renewed:     valueOf(lease.Spec.RenewTime).UnixMicro(),
		term:        seconds(lease.Spec.LeaseDurationSeconds),
	}
	if !e.terms.Live(name, stored) {
		stored.holder = ""
	}
	return stored, nil
}

// Leads refuses a push by a node that does not lead, or no longer leads under the given term.
func (e *Election) Leads(ctx context.Context, n edge.NodeName, term int32) error {
	stored, err := e.leader(ctx)
	if err != nil {
		return unknownHolder(err)
	}
	return decidePush(n, term, stored)
}

// Leader returns the node whose hub leads the pool here; empty means that none does.
func (e *Election) Leader(ctx context.Context) (edge.NodeName, error) {
	stored, err := e.leader(ctx)
	return stored.holder, err
}

// Led reports whether a hub leads the pool here. While that cannot be told, none does.
func (e *Election) Led(ctx context.Context) bool {
	leader, err := e.Leader(ctx)
	return err == nil && leader != ""
}

// unknownHolder refuses a push for now.
func unknownHolder(err error) error {
	return &exchange.Refusal{Code: http.StatusServiceUnavailable, Message: err.Error(), RetryAfter: time.Second}
}

// decidePush is the rule: only the live holder of the election Lease pushes, under the transitions that the Lease has.
func decidePush(n edge.NodeName, term int32, leader leaseMark) error {
	switch {
	case leader.holder == "":
		return exchange.Refused(http.StatusForbidden, "only the leader may push, but nobody holds the Lease %s now",
			edge.LeaseElection)
	case leader.holder != n:
		return exchange.Refused(http.StatusForbidden, "only the leader may push, but node %q leads", leader.holder)
	case leader.transitions != term:
		return exchange.Refused(http.StatusForbidden, "the term %d of node %q is over; it leads under term %d now", term, n,
			leader.transitions)
	}
	return nil
}
