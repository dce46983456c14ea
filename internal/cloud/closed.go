package cloud

import (
	"crypto/tls"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// DefaultMetricsCertDir is where the certificate for /metrics is looked for. Only root writes there.
const DefaultMetricsCertDir = "/etc/coordinator-controller/metrics"

// reviewsPerSecond and reviewsBurst limit how often the API server checks tokens for /metrics, because anybody who reaches the
// port can send made-up ones. The limits hold for authentication and for authorization, each by itself. The API server's answer
// about Prometheus is cached for a minute.
const reviewsPerSecond, reviewsBurst = 5, 20

// newAnswers returns the counter of answers to requests for /metrics. 500 is also what a token gets that nobody knows.
func newAnswers() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coordinator_controller_metrics_answers_total",
		Help: "Answers to requests for /metrics, by their code: 401 without a token, 500 with one that the API server does not " +
			"know, or when it can't be asked, 403 without the right to get /metrics",
	}, []string{"code"})
}

// closedMetrics serves /metrics over TLS, and only to those who the API server says may get it.
func closedMetrics(c Config, answers *prometheus.CounterVec) server.Options {
	dir := c.MetricsCertDir
	if dir == "" {
		dir = DefaultMetricsCertDir // else the library looks in the directory for temporary files, where anybody writes
	}
	return server.Options{
		BindAddress:   c.MetricsAddress,
		SecureServing: true,
		CertDir:       dir,
		TLSOpts:       []func(*tls.Config){http1},
		FilterProvider: func(cfg *rest.Config, client *http.Client) (server.Filter, error) {
			cfg = rest.CopyConfig(cfg)
			cfg.QPS, cfg.Burst = reviewsPerSecond, reviewsBurst
			closed, err := filters.WithAuthenticationAndAuthorization(cfg, client)
			if err != nil {
				return nil, err
			}
			return func(_ logr.Logger, metrics http.Handler) (http.Handler, error) {
				handler, err := closed(logr.Discard(), metrics) // a line for each made-up token would fill the log
				if err != nil {
					return nil, err
				}
				return promhttp.InstrumentHandlerCounter(answers, handler), nil
			}, nil
		},
	}
}

// http1 leaves out HTTP/2, of which one connection may carry many requests.
func http1(c *tls.Config) { c.NextProtos, c.MinVersion = []string{"http/1.1"}, tls.VersionTLS12 }
