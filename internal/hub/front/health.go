package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// HealthConfig configures the HealthHandler. All fields are required.
type HealthConfig struct {
	// Cloud is the state of the link to the cloud.
	Cloud *live.Value[link.State]
	// Status returns what the hub says about itself now.
	Status func() HubStatus
	// Metrics has the metrics.
	Metrics prometheus.Gatherer
	// OpenMetrics serves the metrics to anybody.
	OpenMetrics bool
	// Root reports whether a request comes from a process of root on this host.
	Root func(*http.Request) bool
}

// HealthHandler returns the handler for /healthz, /readyz, /status, /metrics and /debug/pprof/.
func HealthHandler(c HealthConfig) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if c.Cloud.Get() == link.Unknown {
			http.Error(w, "the link to the cloud has not been tried yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	closed := func(pattern string, handler http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !c.Root(r) {
				http.Error(w, "this is for root of this node; --open-metrics opens /metrics to others", http.StatusForbidden)
				return
			}
			handler(w, r)
		})
	}
	metrics := promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	if c.OpenMetrics {
		mux.Handle("GET /metrics", metrics)
	} else {
		closed("GET /metrics", metrics.ServeHTTP)
	}
	closed("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c.Status()) // the caller is gone: nobody to tell
	})
	closed("GET /debug/pprof/", pprof.Index) // and, by name, all but these:
	closed("GET /debug/pprof/profile", pprof.Profile)
	closed("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// maxScrapes bounds the concurrent reads of the metrics.
const maxScrapes = 4
