// Package control registers all controllers in the same way, and sets when they retry what failed.
package control

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yurtcoordinator/internal/ends"
)

// Controller is one controller.
type Controller struct {
	// Name is used in logs and metrics.
	Name string
	// Reconciler does the work. A conflict that it returns is no failure.
	Reconciler reconcile.Reconciler
	// Workers is how many objects are reconciled at a time; 0 means 1.
	Workers int
	// Timeout bounds one reconcile.
	Timeout time.Duration
	// RetryMax is the longest wait before a failed reconcile is tried again, before jitter.
	RetryMax time.Duration
	// Warm makes it watch before it leads.
	Warm bool
	// Chance spreads the waits.
	Chance ends.Chance
	// Watch is what it watches.
	Watch []source.Source
}

// AddTo registers the controller with a manager, to run while the manager leads.
func (c Controller) AddTo(mgr manager.Manager) error {
	yes := true
	options := controller.Options{
		Reconciler:              reconcile.Func(c.reconcile),
		MaxConcurrentReconciles: c.Workers,
		ReconciliationTimeout:   c.Timeout,
		EnableWarmup:            &c.Warm,
		SkipNameValidation:      &yes, // the check keeps names in a global that outlives the manager
		RateLimiter:             NewLimiter(c.RetryMax, c.Chance),
	}
	options.DefaultFromConfig(mgr.GetControllerOptions())
	created, err := controller.NewUnmanaged(c.Name, options)
	if err != nil {
		return fmt.Errorf("controller %s: %w", c.Name, err)
	}
	for _, s := range c.Watch {
		if err := created.Watch(s); err != nil {
			return fmt.Errorf("controller %s: watch %v: %w", c.Name, s, err)
		}
	}
	if w, ok := created.(warmer); ok && c.Warm {
		return mgr.Add(&warm{Controller: created, warmer: w, warmed: make(chan struct{})})
	}
	return mgr.Add(created)
}

// conflictDelay is the least wait after a conflict; jitter at most doubles it. The cache has the newer copy within
// milliseconds. The wait is a tenth of the second within which package heartbeat must write a taint.
const conflictDelay = 100 * time.Millisecond

// reconcile tries again soon if what the Reconciler read had changed when it wrote.
func (c Controller) reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	result, err := c.Reconciler.Reconcile(ctx, r)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(2).Info("Changed since it was read; trying again", "why", err.Error())
		return reconcile.Result{RequeueAfter: c.Chance.Jitter(conflictDelay, 1)}, nil
	}
	return result, err
}

type warmer interface{ Warmup(context.Context) error }

// warm is a controller that watches before it leads. It replaces the warm-up of controller-runtime, which waits for a mutex if
// the controller begins to lead before its first lists have come. Simulated time stands still during such a wait.
type warm struct {
	controller.Controller
	warmer
	warmed chan struct{}
}

// Warmup watches until ctx ends. It returns once the first lists have come.
func (w *warm) Warmup(ctx context.Context) error {
	defer close(w.warmed)
	return w.warmer.Warmup(ctx)
}

// Start implements manager.Runnable.
func (w *warm) Start(ctx context.Context) error {
	select {
	case <-w.warmed:
		return w.Controller.Start(ctx)
	case <-ctx.Done():
		return nil
	}
}

// Base is the first wait before a failed reconcile is tried again, before jitter.
const Base = 50 * time.Millisecond

// NewLimiter returns a rate limiter. Its waits begin at Base and double up to longest; jitter adds up to half to each.
func NewLimiter(longest time.Duration, chance ends.Chance) workqueue.TypedRateLimiter[reconcile.Request] {
	return jittered{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](Base, longest), chance}
}

type jittered struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	chance ends.Chance
}

// When implements workqueue.TypedRateLimiter.
func (j jittered) When(r reconcile.Request) time.Duration {
	return j.chance.Jitter(j.TypedRateLimiter.When(r), 0.5)
}
