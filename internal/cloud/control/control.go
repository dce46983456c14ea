// Package control registers the controllers, all in the same way, and says when they try again what has failed.
package control

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Controller is one controller.
type Controller struct {
	// Name is of its logs and metrics.
	Name string
	// Reconciler does the work.
	Reconciler reconcile.Reconciler
	// Workers is how many objects are looked at at a time. 0: 1.
	Workers int
	// Timeout bounds one reconcile.
	Timeout time.Duration
	// RetryMax is the longest wait before a failed reconcile is tried again, before jitter.
	RetryMax time.Duration
	// Warm has it watch before it leads.
	Warm bool
	// Watch is what it watches.
	Watch []source.Source
}

// AddTo registers the controller with a manager, to run while the manager leads.
func (c Controller) AddTo(mgr manager.Manager) error {
	yes := true
	created, err := controller.New(c.Name, mgr, controller.Options{
		Reconciler:              c.Reconciler,
		MaxConcurrentReconciles: c.Workers,
		ReconciliationTimeout:   c.Timeout,
		EnableWarmup:            &c.Warm,
		SkipNameValidation:      &yes, // the check keeps names in a global that outlives the manager
		RateLimiter:             NewLimiter(c.RetryMax),
	})
	if err != nil {
		return fmt.Errorf("controller %s: %w", c.Name, err)
	}
	for _, s := range c.Watch {
		if err := created.Watch(s); err != nil {
			return fmt.Errorf("controller %s: watch %v: %w", c.Name, s, err)
		}
	}
	return nil
}

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
