package cloud

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// waiting keeps, for each controller, the kinds that it waits for. It reports them as a prometheus.Collector, because a
// controller that waits does nothing, and so reports nothing itself.
type waiting struct {
	gauge *prometheus.Desc

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

func kindText(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + " " + kind.Kind
}

// set says what a controller misses; nothing means that it runs.
func (w *waiting) set(controller string, missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing[controller] = missing
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
