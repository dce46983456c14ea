package cache

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FeedMetrics are the metrics of all feeds of a hub. Make them with NewFeedMetrics.
type FeedMetrics struct {
	source *prometheus.GaugeVec
	lists  *prometheus.CounterVec
	// continued counts lists that went on after they had broken off.
	continued *prometheus.CounterVec
	switches  *prometheus.CounterVec
}

// NewFeedMetrics registers the metrics of feeds. With nil they are not exported.
func NewFeedMetrics(r prometheus.Registerer) *FeedMetrics {
	m := promauto.With(r)
	return &FeedMetrics{
		source: m.NewGaugeVec(prometheus.GaugeOpts{
			Name: "yurthub_replica_source", Help: "1 for the source that feeds a replica.",
		}, []string{"resource", "source"}),
		lists: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_replica_lists_total",
			Help: "Lists begun to fill a replica, by where; those at the cloud cross the WAN.",
		}, []string{"resource", "source"}),
		continued: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_replica_lists_continued_total",
			Help: "How often a list at the cloud that had broken off went on after the pages that were there.",
		}, []string{"resource"}),
		switches: m.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_replica_source_switches_total", Help: "Changes of a replica's source.",
		}, []string{"resource"}),
	}
}

func label(r schema.GroupVersionResource) string { return r.GroupResource().String() }

func (m *FeedMetrics) show(r schema.GroupVersionResource, now Origin) {
	for _, o := range []Origin{Cloud, Coordinator} {
		m.lists.WithLabelValues(label(r), o.String()) // so that the first one shows as an increase
	}
	for _, o := range []Origin{None, Cloud, Coordinator} {
		value := 0.0
		if o == now {
			value = 1
		}
		m.source.WithLabelValues(label(r), o.String()).Set(value)
	}
}

// forget drops the gauges of a feed that has ended; its counters stay.
func (m *FeedMetrics) forget(r schema.GroupVersionResource) {
	m.source.DeletePartialMatch(prometheus.Labels{"resource": label(r)})
}
