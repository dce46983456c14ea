package front

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxResources bounds the values of the resource label: Kubernetes has about 70, a cluster may add some of its own.
const maxResources = 150

// metrics are the front's metrics. A resource gets a label value of its own only after a successful request for it.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight [classes]prometheus.Gauge

	mu    sync.RWMutex
	known map[resource]string
}

type resource struct{ name, subresource string }

func newMetrics(registry prometheus.Registerer) *metrics {
	register := promauto.With(registry)
	m := &metrics{
		requests: register.NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_requests_total",
			Help: "API requests served, by how they ended; 499: broken off before an answer.",
		}, []string{"verb", "resource", "code"}),
		duration: register.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "yurthub_request_duration_seconds",
			Help:    "Time that API requests took, without long-running ones.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"verb"}),
		known: map[resource]string{},
	}
	for c := range classes {
		m.inFlight[c] = register.NewGauge(prometheus.GaugeOpts{
			Name: "yurthub_requests_in_flight", Help: "API requests in flight at all ports, by the class that has a limit.",
			ConstLabels: prometheus.Labels{"class": c.String()},
		})
	}
	return m
}

func (m *metrics) done(info *request.RequestInfo, long bool, code int, took time.Duration) {
	verb := verbLabel(info.Verb)
	m.requests.WithLabelValues(verb, m.resourceLabel(info, code), codeLabel(code)).Inc()
	if !long {
		m.duration.WithLabelValues(verb).Observe(took.Seconds())
	}
}

func verbLabel(verb string) string {
	switch verb {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
		"proxy", "post", "put", "head":
		return verb
	default:
		return "other"
	}
}

func codeLabel(code int) string {
	if code < 100 || code > 599 {
		return "other"
	}
	return strconv.Itoa(code)
}

func (m *metrics) resourceLabel(info *request.RequestInfo, code int) string {
	if !info.IsResourceRequest {
		return ""
	}
	key := resource{info.Resource, info.Subresource}
	m.mu.RLock()
	label, ok := m.known[key]
	m.mu.RUnlock()
	if ok {
		return label
	}
	success := code == http.StatusSwitchingProtocols || code >= 200 && code < 300
	if !success {
		return "other"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxResources {
		return "other"
	}
	label = info.Resource
	if info.Subresource != "" {
		label += "/" + info.Subresource
	}
	m.known[key] = label
	return label
}
