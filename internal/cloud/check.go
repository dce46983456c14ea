package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

const (
	// checkTimeout is how long Check looks for a replica that leads. A Lease is renewed every 2 s, and can be taken after 15.
	checkTimeout = 45 * time.Second
	// checkAgain is how soon it looks again.
	checkAgain = time.Second
)

// Check returns nil once it has seen a replica renew the election's Lease. If it sees none for checkTimeout, the error says what
// is wrong. The time in the Lease alone says nothing, because it comes from another machine's clock. Check needs only the right
// to read that Lease.
func Check(ctx context.Context, c Config) error {
	connection, err := c.connect()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return err
	}
	api, err := client.New(connection, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return err
	}
	namespace := c.LeaderElectNamespace
	if namespace == "" {
		namespace = edge.NamespaceSystem
	}
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("for %v", checkTimeout))
	defer cancel()
	holder, err := leads(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		var lease coordinationv1.Lease
		err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: Name}, &lease)
		return &lease, err
	})
	if err == nil {
		klog.FromContext(ctx).Info("A replica leads", "holder", holder)
	}
	return err
}

// leads returns who renews a Lease, once it is seen renewed.
func leads(ctx context.Context, read func(context.Context) (*coordinationv1.Lease, error)) (string, error) {
	var first *coordinationv1.Lease
	why := errors.New("nobody renews its Lease")
	for {
		switch lease, err := read(ctx); {
		case err != nil:
			if ctx.Err() == nil {
				why = fmt.Errorf("read its Lease: %w", err)
			}
		case ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil:
			first, why = nil, errors.New("nobody holds its Lease")
		case first == nil:
			first, why = lease, fmt.Errorf("%s holds its Lease, and does not renew it", *lease.Spec.HolderIdentity)
		case !lease.Spec.RenewTime.Equal(first.Spec.RenewTime) && *lease.Spec.HolderIdentity == *first.Spec.HolderIdentity:
			return *lease.Spec.HolderIdentity, nil
		default:
			first = lease
		}
		timer := time.NewTimer(checkAgain)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("no replica of %s leads: %w (%w)", Name, why, context.Cause(ctx))
		}
	}
}
