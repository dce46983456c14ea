// Package health serves those who look after a hub: /healthz (the process answers), /readyz (the hub knows whether it reaches
// the cloud, so that requests get an answer or a clear refusal), /status, /metrics, and Go's profiles at /debug/pprof/.
package health

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

// Config says what to serve. All fields are required.
type Config struct {
	// Cloud is the state of the link to the cloud.
	Cloud *live.Value[link.State]
	// Status returns what the hub says about itself now.
	Status func() Status
	// Metrics has the metrics.
	Metrics prometheus.Gatherer
	// Profiling also serves the profiles. They show what the process holds in memory.
	Profiling bool
}

// Handler returns the handler for all of these.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if c.Cloud.Get() == link.Unknown {
			http.Error(w, "the link to the cloud has not been tried yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c.Status()) // the caller is gone: nobody to tell
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))
	if c.Profiling {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // and, by name, all but these:
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}
