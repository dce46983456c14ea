// Package retry says when the controllers try again what has failed.
package retry

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Base is the first wait before a failed reconcile is tried again, before jitter.
const Base = 50 * time.Millisecond

// NewLimiter returns a rate limiter whose waits begin at Base, double up to longest, and are drawn from that and half as much
// again.
func NewLimiter(longest time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return jittered{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](Base, longest)}
}

type jittered struct {
	workqueue.TypedRateLimiter[reconcile.Request]
}

// When implements workqueue.TypedRateLimiter.
func (j jittered) When(r reconcile.Request) time.Duration {
	return wait.Jitter(j.TypedRateLimiter.When(r), 0.5)
}
