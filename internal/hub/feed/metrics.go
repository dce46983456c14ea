package feed

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Metrics are those of all feeds of a hub. Make them with NewMetrics.
type Metrics struct {
	source   *prometheus.GaugeVec
	lists    *prometheus.CounterVec
	switches *prometheus.CounterVec
}

// NewMetrics registers the metrics of feeds; it fails only if they are registered already.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		source: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "yurthub_replica_source", Help: "1 for the source that a replica is fed from.",
		}, []string{"resource", "source"}),
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_replica_lists_total",
			Help: "Lists begun to fill a replica, by where; those at the cloud cross the WAN.",
		}, []string{"resource", "source"}),
		switches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_replica_source_switches_total", Help: "Changes of a replica's source.",
		}, []string{"resource"}),
	}
	for _, c := range []prometheus.Collector{m.source, m.lists, m.switches} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of feeds: %w", err)
		}
	}
	return m, nil
}

func label(r schema.GroupVersionResource) string { return r.GroupResource().String() }

func (m *Metrics) show(r schema.GroupVersionResource, now Origin) {
	for _, o := range []Origin{None, Cloud, Coordinator} {
		value := 0.0
		if o == now {
			value = 1
		}
		m.source.WithLabelValues(label(r), o.String()).Set(value)
	}
}

// forget drops the gauges of a feed that has ended; what was counted stays.
func (m *Metrics) forget(r schema.GroupVersionResource) {
	m.source.DeletePartialMatch(prometheus.Labels{"resource": label(r)})
}
