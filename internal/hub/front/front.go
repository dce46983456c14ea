package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
)

// Upstream is the API server that requests are passed to.
type Upstream interface {
	// AsNode makes requests with the node's identity.
	AsNode() http.RoundTripper
	// AsCaller makes requests with only the credentials that they carry.
	AsCaller() http.RoundTripper
	// Serves makes a core read, and reports whether an API server answers it.
	Serves(ctx context.Context) bool
}

// Replicas serves the hub's own copies of resources.
type Replicas interface {
	// Has reports whether there is a copy of a resource now.
	Has(schema.GroupVersionResource) bool
	// ServeHTTP serves get, list and watch of a replicated resource, with the RequestInfo in the request's context.
	http.Handler
}

// Prover distinguishes kubelet from all other clients; Proof is one.
type Prover interface {
	// Judge returns on whose behalf a request at kubelet's port is made. Credentials does the same for any other port.
	Judge(r *http.Request) Verdict
	Credentials(r *http.Request) Verdict
}

// Keeper has what clients need while neither the cloud nor a coordinator can be reached. The parameter client is the name that
// Recognizer.Admit returns, or empty for kubelet. The context of each request has its RequestInfo.
type Keeper interface {
	// Match reports whether to keep what a request reads.
	Match(r *http.Request) bool
	// Answer answers a client's get, list or watch from the selections followed for it, or returns false and has written nothing.
	Answer(w http.ResponseWriter, r *http.Request, client string) bool
	// Recall answers with the cloud's last answer to a client, or returns false and has written nothing.
	Recall(w http.ResponseWriter, r *http.Request, client string) bool
	// Remember calls pass to answer, and stores the answer for the client.
	Remember(w http.ResponseWriter, r *http.Request, client string, pass http.Handler)
	// Written calls pass to answer a client's write, and updates what is stored of the object.
	Written(w http.ResponseWriter, r *http.Request, client string, pass http.Handler)
}

// Recognizer identifies callers, clients with credentials of their own.
type Recognizer interface {
	// Admit returns the name of a request's caller. If pool is true, the request reads the pool's resources, and ok says that the
	// caller may make this very read. Otherwise ok says that the hub knows the caller, and may answer from what it keeps for that
	// caller. If ok is false, the cloud answers. The request's context has its RequestInfo.
	Admit(r *http.Request, pool bool) (client string, ok bool)
}

// OfflineWriter accepts writes that the cloud does not answer. The context of each request has its RequestInfo.
type OfflineWriter interface {
	// Waits reports whether the Event that a request writes is waiting for the cloud.
	Waits(info *request.RequestInfo) bool
	// Answer answers in the cloud's place, or returns false and has written nothing. body is the request's whole body, or nil if
	// the body is longer than BodyBytes or of unknown length.
	Answer(w http.ResponseWriter, r *http.Request, body []byte) bool
	// Heard records the cloud's answer to a write that has succeeded.
	Heard(answer []byte)
}

// Warrants decides what coordinators may do with this node's kubelet.
type Warrants interface {
	// Answer answers an access review about a coordinator, or returns false and has written nothing. body is as in
	// OfflineWriter.Answer.
	Answer(w http.ResponseWriter, r *http.Request, body []byte) bool
}

// Shown has objects that kubelet sees in another form than the cloud's.
type Shown interface {
	// Get returns a writer for the answer to r, if r is a get of an object that kubelet sees in another form. When the answer is
	// complete, the front calls end, which writes the answer in that form. If the answer breaks off, the front does not call end.
	// For any other request Get returns w itself, and end does nothing. r has its RequestInfo in its context.
	Get(w http.ResponseWriter, r *http.Request) (shown http.ResponseWriter, end func())
}

// Config configures a Front.
type Config struct {
	// Cloud is where requests go.
	Cloud Upstream
	// Proof identifies kubelet's requests, which are made with the node's certificate.
	Proof Prover
	// Replicas answer reads of the resources that they have.
	Replicas Replicas
	// Keeper answers reads from what the hub keeps for clients.
	Keeper Keeper
	// Callers identifies callers.
	Callers Recognizer
	// StandIn accepts writes in the cloud's place; nil if Situation.StandIn is false.
	StandIn OfflineWriter
	// Shown has single objects that kubelet sees in another form than the cloud's; nil means none.
	Shown Shown
	// Warrants answers reviews about coordinators; nil means that the cloud does.
	Warrants Warrants
	// OwnLease serves reads and renewals of the node's own Lease, with the RequestInfo in the request's context.
	OwnLease http.Handler
	// Situation is the part of the routing's input that never changes; the front fills in the states of the links.
	Situation Situation
	// CloudLink and CoordinatorLink return the states of the links.
	CloudLink, CoordinatorLink func() link.State
	// HeartbeatLink returns the state of the link for heartbeats and the node's status, because a neighbour may relay only these.
	// nil means the same as CloudLink.
	HeartbeatLink func() link.State
	// MaxReadOnly, MaxMutating and MaxLongRunning bound kubelet's requests in flight, and separately those of all other clients.
	// Watches, followed logs, exec, attach, port-forward and proxy are long-running.
	MaxReadOnly, MaxMutating, MaxLongRunning int
	// Metrics registers the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Clock is this machine's.
	Clock ends.Clock
}

// requestTimeout bounds a request that is not long-running. It is twice an API server's bound, so that only a client or a link
// that hangs reaches it.
const requestTimeout = 2 * time.Minute

// maxHeartbeats bounds the requests in flight for the node's own Lease: kubelet sends one at a time, and retries it.
const maxHeartbeats = 16

// Front is the handler of all API requests. Serve it with Server.
type Front struct {
	cfg     Config
	timeout time.Duration
	log     klog.Logger
	infos   *request.RequestInfoFactory
	limits  [sources]limits
	shares  *shares // of all but kubelet
	// clientOf returns the client whose share a request counts in.
	clientOf func(*http.Request) string
	metrics  *metrics
	node     http.Handler
	caller   http.Handler
	// judge returns on whose behalf a request is made.
	judge func(*http.Request) Verdict
	door  *door
	// strangers is nil at kubelet's port, which only programs of the host reach.
	strangers *strangers
}

// New returns a Front for the host's own programs. It makes kubelet's requests with the node's identity, and all others with
// their own credentials.
func New(cfg Config) *Front {
	f := &Front{
		cfg: cfg, timeout: requestTimeout, log: klog.Background(), judge: cfg.Proof.Judge, door: newDoor(cfg.Metrics),
		shares: &shares{taken: map[portion]int64{}}, clientOf: programOf,
		infos: &request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		},
	}
	f.setLimits()
	f.metrics = newMetrics(cfg.Metrics)
	pool := &buffers{}
	node, caller := newProxy(cfg.Cloud.AsNode(), pool, f.log), newProxy(cfg.Cloud.AsCaller(), pool, f.log)
	node.ModifyResponse = nodeAccepted
	f.node, f.caller = node, caller
	return f
}

// Guests returns a Front for all clients that are not programs of the host, such as Pods. It has limits of its own, which leave
// room for the host's programs. Each address has only a share of the limits, which leaves room for other addresses. The Front
// never uses the node's identity, and passes on little for clients that the cloud does not know.
func (f *Front) Guests() *Front {
	g := &Front{
		cfg: f.cfg, timeout: f.timeout, log: f.log, infos: f.infos, metrics: f.metrics, node: f.caller, caller: f.caller,
		judge: f.guest, door: f.door.another(), shares: &shares{taken: map[portion]int64{}}, clientOf: guestOf,
		strangers: newStrangers(f.cfg.Clock),
	}
	g.setLimits()
	return g
}

// guest returns on whose behalf a request is made at a port that is not kubelet's.
func (f *Front) guest(r *http.Request) Verdict {
	verdict := f.cfg.Proof.Credentials(r)
	if verdict == Kubelet {
		return Misplaced
	}
	return verdict
}

func (f *Front) setLimits() {
	for of := range f.limits {
		f.limits[of][readOnly].max = int64(f.cfg.MaxReadOnly)
		f.limits[of][mutating].max = int64(f.cfg.MaxMutating)
		f.limits[of][longRunning].max = int64(f.cfg.MaxLongRunning)
		f.limits[of][heartbeat].max = maxHeartbeats
	}
}

// ServeHTTP runs one request through the chain: parse, identify, decide, limit, serve. It counts the request and catches panics.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := f.cfg.Clock.Running()
	rec := &recorder{ResponseWriter: w}
	info, err := f.infos.NewRequestInfo(r)
	if err != nil || r.Method == http.MethodConnect {
		writeStatus(rec, r, badRequest(err))
		f.metrics.done(&request.RequestInfo{Verb: "other"}, false, rec.status, 0)
		return
	}
	long := isLongRunning(info, r)
	defer func() {
		caught := recover()
		if err, _ := caught.(error); caught != nil && !errors.Is(err, http.ErrAbortHandler) {
			f.log.Error(fmt.Errorf("panic: %v", caught), "A request handler failed",
				"verb", info.Verb, "path", info.Path,
				"stack", string(debug.Stack()))
			if !rec.wrote() {
				writeStatus(rec, r, internalError())
				caught = nil
			} else {
				caught = http.ErrAbortHandler // what was answered so far must not look complete
			}
		}
		if caught != nil {
			rec.aborted = true
		}
		f.metrics.done(info, long, rec.code(), f.cfg.Clock.Since(start))
		if caught != nil {
			panic(caught)
		}
	}()
	f.serve(rec, r, info, long)
}

func (f *Front) serve(w *recorder, r *http.Request, info *request.RequestInfo, long bool) {
	verdict := f.judge(r)
	if refusal := refusalOf(verdict); refusal != nil {
		f.door.refused(f.log, r, verdict.String())
		writeStatus(w, r, refusal)
		return
	}
	if verdict == Kubelet {
		r.Header.Del("Authorization") // the token is for this port alone
	}
	req := f.requestOf(r, info, verdict != Kubelet)
	to := Decide(req, f.situation())
	if to.Kind == Refused {
		f.log.Info("Refused a request", "verb", info.Verb, "path", info.Path, "from", r.RemoteAddr, "reason", to.Reason)
		writeStatus(w, r, forbidden(to.Reason))
		return
	}
	class := classOf(info, long, to.Kind)
	place := &f.limits[sourceOf(verdict)][class]
	newcomer := conns.NewcomerOf(r.Context())
	if verdict == Kubelet {
		if newcomer != nil {
			newcomer.Prove()
		}
	} else {
		if newcomer != nil && Bearer(r) != "" { // without a token, the cloud answers some requests of anybody
			w.known = newcomer.Prove
		}
		own := portion{f.clientOf(r), class}
		if !f.shares.enter(own, place.max) {
			f.door.refused(f.log, r, crowding)
			writeStatus(w, r, tooManyOfYours(class))
			return
		}
		defer f.shares.leave(own)
		if !f.strangers.admit(r, func() bool { return f.knows(r, info) }) {
			f.door.refused(f.log, r, unproven)
			writeStatus(w, r, tooMuchUnproven())
			return
		}
		defer func() {
			if w.status == http.StatusUnauthorized {
				f.door.refused(f.log, r, unknownCaller)
			}
		}()
	}
	if !place.enter() {
		writeStatus(w, r, tooMany(class))
		return
	}
	defer place.leave()
	f.metrics.inFlight[class].Inc()
	defer f.metrics.inFlight[class].Dec()
	var done func()
	if long {
		r, done = untilDraining(r)
	} else {
		r, done = f.within(w, r)
	}
	defer done()
	if !long && r.Body != http.NoBody {
		body := newPromptBody(w, r)
		defer body.leave()
		r.Body = body
	}
	if r.ProtoMajor == 1 && r.Body != http.NoBody {
		// Otherwise net/http throws the rest of the body away when a server begins to answer before it has read it all.
		_ = http.NewResponseController(w).EnableFullDuplex() // only writers in tests do not support it
		w.body = &received{ReadCloser: r.Body, length: r.ContentLength}
		r.Body = w.body
	}
	if conflict := overwrites(r, info); conflict != nil {
		writeStatus(w, r, conflict)
		return
	}
	f.answer(w, r, info, req, to.Kind)
}

// knows reports whether the hub can find out whose token a request shows.
func (f *Front) knows(r *http.Request, info *request.RequestInfo) bool {
	_, known := f.cfg.Callers.Admit(r.WithContext(request.WithRequestInfo(r.Context(), info)), false)
	return known
}

// recorder records the answer's status.
type recorder struct {
	http.ResponseWriter
	status  int
	aborted bool
	body    *received // nil means that nobody asks whether it was read to its end
	known   func()    // is called if the answer shows that the caller's token is good; nil means no call
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
		if status < 400 && r.known != nil {
			r.known()
		}
		if status >= 200 && r.body != nil && !r.body.ended.Load() {
			// net/http may have to close the connection after this answer. With full duplex it does not tell the client so by
			// itself, and the client would send its next request on the closed connection.
			r.Header().Set("Connection", "close")
		}
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(p)
}

// received is a request's body that records whether it was read to its end.
type received struct {
	io.ReadCloser
	length int64 // -1: unknown
	read   int64
	ended  atomic.Bool
}

func (b *received) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if errors.Is(err, io.EOF) || b.read == b.length {
		b.ended.Store(true)
	}
	return n, err
}

// Hijack hands the connection over, which ReverseProxy does once upstream has agreed to an upgrade.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) wrote() bool { return r.status != 0 }

// statusAborted is the code in metrics for a request whose client went away, or that was broken off, before an answer.
const statusAborted = 499

func (r *recorder) code() int {
	switch {
	case r.status != 0:
		return r.status
	case r.aborted:
		return statusAborted
	default:
		return http.StatusOK // what net/http sends for a handler that wrote nothing
	}
}

func badRequest(err error) *metav1.Status {
	if err == nil {
		err = errors.New("method CONNECT is not served")
	}
	return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
}
