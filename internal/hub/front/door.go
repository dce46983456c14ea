package front

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
)

const (
	// refusalsPerSecond and refusalBurst bound the log lines about refusals, because a refused client may retry without end.
	refusalsPerSecond, refusalBurst = 0.1, 5
	// maxQuoted bounds the client's text that a line quotes.
	maxQuoted = 100
)

// refusalOf returns the Status for a refused client, or nil for an admitted one.
func refusalOf(v Verdict) *metav1.Status {
	switch v {
	case Kubelet, Caller:
		return nil
	case Misdirected:
		return failure(http.StatusMisdirectedRequest, "Misdirected",
			"yurthub: this is no host of that name; use the address in kubelet's kubeconfig")
	case Misplaced:
		return unauthorized(
			"yurthub: kubelet's token is good at kubelet's port alone, and only as the one bearer token of a request")
	default:
		return unauthorized("yurthub: show a token: kubelet has one for its port, other programs bring one of their own")
	}
}

// Reasons for refusals, besides those of a Verdict.
const (
	crowding      = "too-many"      // they have too many requests in flight
	unknownCaller = "unknown-token" // the cloud, or what it said last, knows nobody by what they show
	unproven      = "unproven"      // they ask too much with tokens that the cloud has not accepted
)

// door counts and logs refused requests.
type door struct {
	refusals *prometheus.CounterVec
	limit    *rate.Limiter

	mu       sync.Mutex
	unlogged int
}

func newDoor(metrics prometheus.Registerer) *door {
	refusals := promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "yurthub_refused_requests_total",
		Help: "Requests that the hub refused because of who made them, by the reason.",
	}, []string{"reason"})
	for _, why := range []string{
		Stranger.String(), Misdirected.String(), Misplaced.String(), crowding, unknownCaller, unproven,
	} {
		refusals.WithLabelValues(why) // so that an alert sees the first one
	}
	return &door{refusals: refusals, limit: rate.NewLimiter(refusalsPerSecond, refusalBurst)}
}

// another returns a door for another port, with the same counters. Each door has its own limit for log lines, so that strangers
// do not keep lines about the host's programs out of the log.
func (d *door) another() *door {
	return &door{refusals: d.refusals, limit: rate.NewLimiter(refusalsPerSecond, refusalBurst)}
}

// refused notes a refusal.
func (d *door) refused(log klog.Logger, r *http.Request, why string) {
	d.refusals.WithLabelValues(why).Inc()
	d.mu.Lock()
	if !d.limit.Allow() {
		d.unlogged++
		d.mu.Unlock()
		return
	}
	unlogged := d.unlogged
	d.unlogged = 0
	d.mu.Unlock()
	owner, err := conns.OfRequest(r) // for people who investigate
	if err != nil {
		owner = "unknown" // as of a request from elsewhere
	}
	log.Info("Refused a request", "reason", why, "from", r.RemoteAddr, "uid", owner, "method", r.Method,
		"path", quoted(r.URL.Path), "agent", quoted(r.UserAgent()), "host", quoted(r.Host), "notLogged", unlogged)
}

func quoted(text string) string { return text[:min(len(text), maxQuoted)] }
