// Package limits bounds how many requests each caller of a coordinator has under way, and how large and how frequent its
// heartbeats are. A caller has a number of places for each kind of request, and each request takes one or more. Lists take much
// memory, so they have a second bound: all nodes together have as many places for lists as one caller, and all other callers
// together have twice as many.
//
// Invariants: places belong to callers, not to paths. Except for lists, a caller that fills its own places does not delay others.
// Heartbeats and the election have their own places, which no other request takes. A body that does not arrive costs its sender
// one of its own places, for BodyTimeout. A Lease that is too large, or too early, is refused before it is read.
package limits

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
)

// kind is what a place is for.
type kind string

const (
	requests kind = "requests"
	lasting  kind = "lasting" // watches, streams into containers, followed logs, pushes
	leases   kind = "leases"  // reads and writes of a Lease
	lists    kind = "lists"   // lists, by pages
	all      kind = "all"     // requests or lists of all callers together
	// A caller has no places of these: they say what is wrong with the write of a Lease.
	renewals kind = "renewals" // it comes too early
	large    kind = "large"    // it is too large
	// nodesLists is of no caller: the lists of all nodes together.
	nodesLists kind = "nodes-lists"
)

// mostRequests, mostLasting and mostLeases are how many requests of a kind a caller may have under way: ordinary ones, lasting
// ones such as watches, and those about a Lease. A hub has a handful of requests and a dozen watches; a leader has one watch more
// for each shared resource. kubectl has 10 at most. mostOfAll bounds the ordinary requests of all callers together: it is
// kube-apiserver's own number.
const (
	mostRequests = 16
	mostLasting  = 100
	mostLeases   = 8
	mostOfAll    = 400
)

const (
	// mostLists, mostListsOfNodes and mostListsOfAll are how many pages of lists a caller, all nodes, and all other callers may
	// have under way. kubectl reads page by page; nodes read none. A page is in memory until its client has read it. A page of
	// EndpointSlices takes up to 15 MB: a tenth of the 154 MB of 5000 EndpointSlices (docs/benchmarks.md).
	mostLists        = 8
	mostListsOfNodes = 8
	mostListsOfAll   = 16
	// pageSize is how many objects a page has at most; it is kubectl's. A larger list takes all places of a caller. So does a
	// page with a selector, because the storage also reads the objects that the selector leaves out.
	pageSize = 500
)

// most is how many places a caller has, mostTogether how many all callers have, if there is a bound.
var (
	most         = map[kind]int{requests: mostRequests, lasting: mostLasting, leases: mostLeases, lists: mostLists}
	mostTogether = map[kind]int{requests: mostOfAll, lists: mostListsOfAll, nodesLists: mostListsOfNodes}
)

const (
	// renewalEvery and renewalBurst bound how often a node may write Leases of nodes: once each renewalEvery in the long run, and
	// renewalBurst times at once. kubelet renews after each quarter of its Lease's duration: every 10 s by default. Its hub
	// writes once more when its link changes, and again after a conflict.
	renewalEvery = time.Second
	renewalBurst = 5
	// othersEvery and othersBurst bound how often a caller may write other Leases: once each othersEvery in the long run, and
	// othersBurst times at once. Every hub of the pool hears of these Leases. A leader writes two of them: one every second, the
	// other at most twice a second.
	othersEvery = 200 * time.Millisecond
	othersBurst = 20
	// maxRenewing bounds the paces that are remembered: more than two of each node of a pool.
	maxRenewing = 4096

	// BodyTimeout is how long the body of a request may take that is not lasting. The largest is a review, of some KB.
	BodyTimeout = 5 * time.Second
	// AnswerTimeout is how long a request without a body may take until its answer has been read, unless it is a lasting one.
	// kube-apiserver allows as long, but its own bound does not end an answer that nobody reads.
	AnswerTimeout = 60 * time.Second
	// retryAfter is what a refused caller is told.
	retryAfter = time.Second
	// tellEvery and tellBurst bound the log's lines about refusals.
	tellEvery, tellBurst = 10 * time.Second, 5
	// strangers begins the names of callers that the pool does not expect.
	strangers = "not of this pool: "
	// maxQuoted bounds what a line quotes.
	maxQuoted = 200
)

var refusals = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "yurt_coordinator_limited_requests_total",
	Help: "Requests that were refused because their caller had too many under way, by what it had too many of (requests, " +
		"lasting, leases, lists), or all callers together (all); and writes of Leases that came too early (renewals) or were " +
		"too large (large)",
	StabilityLevel: metrics.ALPHA,
}, []string{"limit"})

var connections = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "yurt_coordinator_refused_connections_total",
	Help: "Connections that got no further than the TLS handshake or were closed to make room, by the reason: no-certificate, " +
		"unknown (a certificate that none of the pool's authorities has signed), slow, broken; and too-many of its client " +
		"or its address, or of all",
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
	for _, k := range []kind{requests, lasting, leases, lists, all, renewals, large} {
		refusals.WithLabelValues(string(k))
	}
	for _, why := range conns.Reasons {
		connections.WithLabelValues(string(why))
	}
})

// Limits counts what is under way.
type Limits struct {
	clock ends.Clock
	lasts func(*http.Request, *request.RequestInfo) int
	knows func(user.Info) bool
	log   klog.Logger
	lines *rate.Limiter
	// answered is AnswerTimeout but in tests.
	answered time.Duration
	// patience is how long a list waits for its places. Meanwhile it takes a place of requests.
	patience time.Duration

	mu      sync.Mutex
	taken   map[place]int // without zeros
	renewed *lru.Cache    // of *rate.Limiter, by place
}

// place is one caller's, of a kind; those of all have no caller.
type place struct {
	caller string
	kind   kind
}

// New returns Limits that log to log. The function lasts returns how many places a lasting request takes, such as a watch, a
// stream or a push; 0 means that the request does not last. The function knows reports whether the pool expects a caller.
func New(
	lasts func(*http.Request, *request.RequestInfo) int, knows func(user.Info) bool, c ends.Clock, log klog.Logger,
) *Limits {
	register()
	return &Limits{
		clock: c, lasts: lasts, knows: knows, log: log, lines: rate.NewLimiter(rate.Every(tellEvery), tellBurst),
		answered: AnswerTimeout, patience: time.Second / 2, taken: map[place]int{}, renewed: lru.New(maxRenewing),
	}
}

// Handler returns next with the limits before it. Put it behind authentication and authorization, because it marks the connection
// of each caller that the pool expects as authenticated (conns.Newcomer).
func (l *Limits) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, known := request.UserFrom(r.Context())
		info, parsed := request.RequestInfoFrom(r.Context())
		if !known || !parsed || slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) { // this process itself
			next.ServeHTTP(w, r)
			return
		}
		if !l.knows(caller) { // so it takes no places of a member with its name
			caller = &user.DefaultInfo{Name: strangers + caller.GetName(), Groups: caller.GetGroups()}
		} else if from := conns.NewcomerOf(r.Context()); from != nil {
			from.Prove()
		}
		of, places := l.kindOf(r, info)
		short := l.judgeLease(r, info, caller.GetName())
		if short == "" {
			short = l.enter(caller, of, places)
			// A client may ask again before the handler of what it has just read has returned.
			if short != "" && of == lists && l.enter(caller, requests, 1) == "" {
				pause := l.patience / 20
				_ = wait.PollUntilContextTimeout(r.Context(), pause, l.patience, false, func(context.Context) (bool, error) {
					short = l.enter(caller, of, places)
					return short == "", nil
				})
				l.leave(caller, requests, 1)
			}
		}
		if short != "" {
			l.refuse(w, r, caller.GetName(), short)
			return
		}
		defer l.leave(caller, of, places)
		if of != lasting {
			body := exchange.NewBody(r.Context(), w, r.Body, BodyTimeout) // its Cut does nothing once a body has been read
			defer body.Leave()
			defer time.AfterFunc(l.answered, body.Cut).Stop() // real time, as the connection's deadlines
			if r.ContentLength != 0 {
				defer time.AfterFunc(BodyTimeout, body.Cut).Stop()
				r.Body = cutBody{body, r.Body.Close}
			}
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

// kindOf returns what places a request takes, and how many.
func (l *Limits) kindOf(r *http.Request, info *request.RequestInfo) (of kind, places int) {
	switch n := l.lasts(r, info); {
	case n > 0:
		return lasting, n
	case info.IsResourceRequest && info.Verb == "list" && info.APIGroup == "metrics.k8s.io":
		return lists, mostLists / 2 // it reads all objects, but keeps few bytes of them while it waits for kubelets, up to 20 s
	case info.IsResourceRequest && info.Verb == "list":
		query := r.URL.Query()
		n, err := strconv.Atoi(query.Get("limit"))
		if err == nil && 0 < n && n <= pageSize && query.Get("labelSelector") == "" && query.Get("fieldSelector") == "" {
			return lists, 1
		}
		return lists, mostLists
	case isLease(info):
		return leases, 1
	default:
		return requests, 1
	}
}

func isLease(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == "coordination.k8s.io" && info.Resource == "leases"
}

// judgeLease returns what is wrong with the write of a Lease, before its body is read.
func (l *Limits) judgeLease(r *http.Request, info *request.RequestInfo, caller string) kind {
	switch {
	case !isLease(info) || r.Method == http.MethodGet:
		return ""
	case r.ContentLength < 0 || r.ContentLength > exchange.MaxLease:
		return large
	case info.Namespace == corev1.NamespaceNodeLease && !l.mayRenew(place{caller, renewals}, renewalEvery, renewalBurst),
		info.Namespace != corev1.NamespaceNodeLease && !l.mayRenew(place{caller, leases}, othersEvery, othersBurst):
		return renewals
	}
	return ""
}

func (l *Limits) mayRenew(which place, every time.Duration, burst int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pace, ok := l.renewed.Get(which)
	if !ok {
		pace = rate.NewLimiter(rate.Every(every), burst)
		l.renewed.Add(which, pace)
	}
	return pace.(*rate.Limiter).AllowN(l.clock.Running(), 1) //nolint:forcetypeassert // nothing else is put there
}

// enter takes places, or returns what there is too much of.
func (l *Limits) enter(caller user.Info, of kind, places int) (short kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, everyones := place{caller.GetName(), of}, shared(caller, of)
	switch together, bound := mostTogether[everyones.kind]; {
	case l.taken[own]+places > most[of]:
		return of
	case bound && l.taken[everyones]+places > together:
		return all
	}
	l.taken[own] += places
	l.taken[everyones] += places
	return ""
}

// shared returns the place that a caller shares with others.
func shared(caller user.Info, of kind) place {
	if of == lists && slices.Contains(caller.GetGroups(), user.NodesGroup) {
		return place{"", nodesLists} // a stolen node does not keep people from looking
	}
	return place{"", of}
}

func (l *Limits) leave(caller user.Info, of kind, places int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range []place{{caller.GetName(), of}, shared(caller, of)} {
		if l.taken[p] -= places; l.taken[p] == 0 {
			delete(l.taken, p)
		}
	}
}

func (l *Limits) refuse(w http.ResponseWriter, r *http.Request, caller string, short kind) {
	refusals.WithLabelValues(string(short)).Inc()
	why := whyRefused(short)
	if l.lines.AllowN(l.clock.Running(), 1) {
		l.log.Info("Refused a request beyond a limit", "caller", caller, "limit", short, "why", why.Message,
			"method", r.Method, "path", r.URL.Path, "source", r.RemoteAddr)
	}
	reply := &exchange.Reply{ResponseWriter: w}
	reply.Refuse(context.WithoutCancel(r.Context()), why)
}

// whyRefused returns the answer to a request that there is too much of.
func whyRefused(short kind) *exchange.Refusal {
	why := &exchange.Refusal{Code: http.StatusTooManyRequests, RetryAfter: retryAfter}
	switch short {
	case lasting:
		why.Message = "too many of your watches and streams are under way; end some"
	case all:
		why.Message = "too many requests of all callers are under way; wait"
	case lists:
		why.Message = fmt.Sprintf("you read more than %d pages of %d objects at a time, or more than one list that has no "+
			"limit; read page by page (limit=%d), or wait", mostLists, pageSize, pageSize)
	case renewals:
		why.Message = fmt.Sprintf("you write Leases of nodes more often than once in %s, or others more often than once in %s; "+
			"wait, and then write the newest", renewalEvery, othersEvery)
	case large:
		why.Code, why.RetryAfter = http.StatusRequestEntityTooLarge, 0
		why.Message = fmt.Sprintf("a Lease has at most %d bytes here, and Content-Length says how many; write fewer annotations "+
			"and owner references", exchange.MaxLease)
	case requests, leases:
		why.Message = "too many of your " + string(short) + " are under way; end some, or wait"
	}
	return why
}

// TurnAway returns next, and closes the connection of a client that has not proved itself after its first 401 or 403.
func TurnAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from := conns.NewcomerOf(r.Context()); from != nil && !from.Proved() {
			w = responsewriter.WrapForHTTP1Or2(&turningAway{w, from})
		}
		next.ServeHTTP(w, r)
	})
}

// turningAway is the answer to a client that has not proved itself.
type turningAway struct {
	http.ResponseWriter
	from *conns.Newcomer
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *turningAway) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter. With HTTP/2, too, the server closes the connection after such an answer.
func (t *turningAway) WriteHeader(code int) {
	if (code == http.StatusUnauthorized || code == http.StatusForbidden) && !t.from.Proved() {
		t.Header().Set("Connection", "close")
	}
	t.ResponseWriter.WriteHeader(code)
}
