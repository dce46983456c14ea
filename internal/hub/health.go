package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"yurtcoordinator/internal/hub/link"
)

// healthHandler serves /healthz (the process answers), /readyz (it has found out whether it reaches the cloud, so that
// requests meet an answer or a clear refusal), /status and /metrics; with Config.Profiling also /debug/pprof/.
func (h *Hub) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h.cloud.Link().Get() == link.Unknown {
			http.Error(w, "the link to the cloud has not been tried yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.Status()) // the caller is gone: nobody to tell
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{}))
	if h.cfg.Profiling {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // and, by name, all but these:
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}
