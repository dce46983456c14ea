package cloud

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/internal/live"
)

// waiting keeps, for each controller, the kinds that it waits for. It reports them as a prometheus.Collector, because a
// controller that waits does nothing, and so reports nothing itself.
type waiting struct {
	gauge *prometheus.Desc

	// changed is the number of the last change.
	changed live.Value[int]

	mu      sync.Mutex
	missing map[string][]string // by controller
}

func newWaiting() *waiting {
	return &waiting{
		gauge: prometheus.NewDesc("coordinator_controller_waiting",
			"1 for each controller that waits until the API server serves a kind", []string{"controller", "kind"}, nil),
		missing: make(map[string][]string),
	}
}

// sayAgain is how often a controller's wait is reported again: on objects that are new, and after a failure.
const sayAgain = 30 * time.Second

// saying returns a Runnable that reports, while this process leads, a controller's wait on objects of a kind that is served.
func (w *waiting) saying(
	controller string, of schema.GroupVersionKind, say func(ctx context.Context, missing []string) error,
) manager.Runnable {
	own := kindText(of)
	return manager.RunnableFunc(func(ctx context.Context) error {
		timer := time.NewTimer(sayAgain)
		defer timer.Stop()
		for {
			_, changed := w.changed.Watch()
			missing := w.all()[controller]
			if len(missing) > 0 && !slices.Contains(missing, own) {
				if err := say(ctx, missing); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Failed to say what a controller waits for", "controller", controller)
				}
			}
			select {
			case <-changed:
			case <-timer.C:
				timer.Reset(sayAgain)
			case <-ctx.Done():
				return nil
			}
		}
	})
}

func kindText(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + " " + kind.Kind
}

// set says what a controller misses; nothing means that it runs.
func (w *waiting) set(controller string, missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.missing[controller], missing) {
		return
	}
	w.missing[controller] = missing
	w.changed.Set(w.changed.Get() + 1)
}

func (w *waiting) all() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.missing)
}

// Describe implements prometheus.Collector.
func (w *waiting) Describe(ch chan<- *prometheus.Desc) { ch <- w.gauge }

// Collect implements prometheus.Collector.
func (w *waiting) Collect(ch chan<- prometheus.Metric) {
	for controller, missing := range w.all() {
		for _, kind := range missing {
			ch <- prometheus.MustNewConstMetric(w.gauge, prometheus.GaugeValue, 1, controller, kind)
		}
	}
}
