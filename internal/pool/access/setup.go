package access

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
)

const (
	// furnishRetry is the pause after a failure; it doubles up to furnishMost.
	furnishRetry, furnishMost = 20 * time.Millisecond, 10 * time.Second
	// quietFailures are not logged: the server is only just starting.
	quietFailures = 6
)

// Furnish makes what a coordinator has from the start, and tries until it has. Its error is that ctx has ended.
func Furnish(ctx context.Context, client kubernetes.Interface) error {
	pause := wait.Backoff{Duration: furnishRetry, Factor: 2, Steps: 16, Cap: furnishMost}.DelayFunc()
	failures := 0
	return pause.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := furnish(ctx, client)
		if err != nil {
			if failures++; failures > quietFailures {
				klog.FromContext(ctx).Error(err, "Failed to make the pool's Leases; will retry")
			}
		}
		return err == nil, nil
	})
}

// furnish makes the namespaces of the Leases, and the pool's own Leases, without holders. Any node may take an election Lease
// without a holder. While the Lease leader-informer-sync has neither a holder nor a renewTime, the pool's resources are not
// current, as if that Lease did not exist.
func furnish(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range systems {
		_, err := client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	for _, name := range poolLeases {
		_, err := client.CoordinationV1().Leases(edge.NamespaceSystem).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("lease %s: %w", name, err)
		}
	}
	return nil
}
