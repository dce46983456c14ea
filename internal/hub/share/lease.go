package share

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/internal/edge"
)

// lease is a Lease of the coordinator by which this hub says what it does.
type lease struct {
	client coordinationv1client.LeasesGetter
	name   string
}

func (l lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	is, err := l.client.Leases(edge.NamespaceSystem).Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the Lease %s: %w", l.name, err)
	}
	return is, nil
}

func (l lease) update(ctx context.Context, next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	is, err := l.client.Leases(edge.NamespaceSystem).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the Lease %s: %w", l.name, err)
	}
	return is, nil
}
