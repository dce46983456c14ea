// Package limits bounds how many requests each caller of a coordinator has under way. No caller can use up the places of another.
//
// Invariants: places belong to callers, not to paths. A caller that fills its own places does not delay others. Heartbeats and
// the election have their own places, which no other request takes. A body that does not arrive costs its sender one of its own
// places, for BodyTimeout.
package limits

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
)

// kind is what a place is for.
type kind string

const (
	requests kind = "requests"
	lasting  kind = "lasting" // watches, streams into containers, followed logs, pushes
	leases   kind = "leases"  // reads and writes of Leases that end
	all      kind = "all"     // requests of all callers together
)

// most is how many requests of a kind a caller may have under way. A hub has a handful of requests and a dozen watches; a leader
// has one watch more for each shared resource. kubectl has 10 at most.
var most = map[kind]int{requests: 16, lasting: 100, leases: 8}

// mostOfAll is how many requests all callers may have under way: kube-apiserver's own number. Leases do not count.
const mostOfAll = 400

const (
	// BodyTimeout is how long the body of a request may take that is not lasting. The largest is a review, of some KB.
	BodyTimeout = 5 * time.Second
	// retryAfter is what a refused caller is told.
	retryAfter = time.Second
	// tellEvery and tellBurst bound the log's lines about refusals.
	tellEvery, tellBurst = 10 * time.Second, 5
	// maxQuoted bounds what a line quotes.
	maxQuoted = 200
)

var refusals = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "yurt_coordinator_limited_requests_total",
	Help: "Requests that were refused because their caller had too many under way, by what it had too many of (requests, " +
		"lasting, leases), or all callers together (all)",
	StabilityLevel: metrics.ALPHA,
}, []string{"limit"})

var connections = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "yurt_coordinator_refused_connections_total",
	Help: "Connections that got no further than the TLS handshake, by the reason: no-certificate, unknown (a certificate that " +
		"none of the pool's authorities has signed), slow, broken, or too-many of its address",
	StabilityLevel: metrics.ALPHA,
}, []string{"reason"})

// Refused returns what counts and logs connections that were refused. The log has a bound for each reason.
func Refused(log klog.Logger) func(from netip.AddrPort, why conns.Reason, err error) {
	register()
	lines := map[conns.Reason]*rate.Limiter{}
	for _, why := range conns.Reasons {
		lines[why] = rate.NewLimiter(rate.Every(tellEvery), tellBurst)
	}
	return func(from netip.AddrPort, why conns.Reason, err error) {
		connections.WithLabelValues(string(why)).Inc()
		if lines[why].Allow() {
			log.Info("Refused a connection", "source", from, "reason", why, "err", short(err.Error()))
		}
	}
}

// short bounds what a line says of an error, which may quote what the client has sent.
func short(text string) string { return text[:min(len(text), maxQuoted)] }

var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(refusals, connections)
	for _, k := range []kind{requests, lasting, leases, all} {
		refusals.WithLabelValues(string(k))
	}
	for _, why := range conns.Reasons {
		connections.WithLabelValues(string(why))
	}
})

// Limits counts what is under way.
type Limits struct {
	clock ends.Clock
	lasts func(*http.Request, *request.RequestInfo) bool
	log   klog.Logger
	lines *rate.Limiter

	mu    sync.Mutex
	taken map[place]int // without zeros
}

// place is one caller's, of a kind; that of all has no caller.
type place struct {
	caller string
	kind   kind
}

// New returns Limits that log to log. lasts reports which requests last: watches, streams, pushes.
func New(lasts func(*http.Request, *request.RequestInfo) bool, c ends.Clock, log klog.Logger) *Limits {
	register()
	return &Limits{
		clock: c, lasts: lasts, log: log, lines: rate.NewLimiter(rate.Every(tellEvery), tellBurst), taken: map[place]int{},
	}
}

// Handler returns next with the limits before it. It must come after the caller is known.
func (l *Limits) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, known := request.UserFrom(r.Context())
		info, parsed := request.RequestInfoFrom(r.Context())
		if !known || !parsed || slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) { // this process itself
			next.ServeHTTP(w, r)
			return
		}
		of := l.kindOf(r, info)
		if short := l.enter(caller.GetName(), of); short != "" {
			l.refuse(w, r, caller.GetName(), short)
			return
		}
		defer l.leave(caller.GetName(), of)
		if of != lasting && r.ContentLength != 0 {
			body := exchange.NewBody(r.Context(), w, r.Body, BodyTimeout)
			late := time.AfterFunc(BodyTimeout, body.Cut) // real time, as the connection's deadlines
			defer late.Stop()
			defer body.Leave()
			r.Body = cutBody{body, r.Body.Close}
		}
		next.ServeHTTP(w, r)
	})
}

type cutBody struct {
	*exchange.Body
	end func() error
}

// Close implements io.Closer.
func (b cutBody) Close() error { return b.end() }

func (l *Limits) kindOf(r *http.Request, info *request.RequestInfo) kind {
	switch {
	case l.lasts(r, info):
		return lasting
	case info.IsResourceRequest && info.APIGroup == "coordination.k8s.io" && info.Resource == "leases":
		return leases
	default:
		return requests
	}
}

// enter takes a place, or returns what there is too much of.
func (l *Limits) enter(caller string, of kind) (short kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, everyones := place{caller, of}, place{"", all}
	switch {
	case l.taken[own] >= most[of]:
		return of
	case of == requests && l.taken[everyones] >= mostOfAll:
		return all
	}
	l.taken[own]++
	if of == requests {
		l.taken[everyones]++
	}
	return ""
}

func (l *Limits) leave(caller string, of kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.give(place{caller, of})
	if of == requests {
		l.give(place{"", all})
	}
}

// give gives a place back. The caller holds mu.
func (l *Limits) give(p place) {
	if l.taken[p]--; l.taken[p] == 0 {
		delete(l.taken, p)
	}
}

func (l *Limits) refuse(w http.ResponseWriter, r *http.Request, caller string, short kind) {
	refusals.WithLabelValues(string(short)).Inc()
	if l.lines.AllowN(l.clock.Running(), 1) {
		l.log.Info("Refused a request: too many are under way", "caller", caller, "limit", short,
			"method", r.Method, "path", r.URL.Path, "source", r.RemoteAddr)
	}
	why := "too many of your " + string(short) + " are under way; end some, or wait"
	switch short {
	case lasting:
		why = "too many of your watches and streams are open; end some"
	case all:
		why = "too many requests of all callers are under way; wait"
	case requests, leases:
	}
	reply := &exchange.Reply{ResponseWriter: w}
	reply.Refuse(context.WithoutCancel(r.Context()),
		&exchange.Refusal{Code: http.StatusTooManyRequests, Message: why, RetryAfter: retryAfter})
}
