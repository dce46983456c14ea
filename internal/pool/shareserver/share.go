package shareserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

const (
	// maxPushes bounds how many pushes that end are read at a time, of each share.
	maxPushes = 8
	// pushWait is how long a push waits while others are read.
	pushWait = 10 * time.Second
	// quietFactor is how many times StallTimeout a lasting push may stay silent. Its pusher sends a sign of life each 10 s.
	quietFactor = 3
)

var (
	errStopping error = &exchange.Refusal{
		Code: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "the coordinator is stopping",
	}
	errSuperseded = exchange.Refused(http.StatusConflict, "another push of changes to the same resource has begun")
)

// share takes pushes, either of the pool's resources or of nodes' own objects, as its rules say. It reads each batch to its end
// before the rules apply it. So a batch that breaks off, stalls or is malformed has no effect.
type share struct {
	path    string
	rules   rules
	nodes   nodeidentifier.NodeIdentifier
	stalled time.Duration // how long a body may bring nothing
	most    int64         // the bytes of a push that ends
	wait    time.Duration // how long a push waits for a slot
	slots   chan struct{} // has one for each push under way that ends

	mu     sync.Mutex // also guards the content, as the rules say
	closed bool
	// following ends a resource's latest push that lasts.
	following map[schema.GroupVersionResource]context.CancelCauseFunc
}

// rules say who may bring what to a share, and what becomes of it.
type rules interface {
	// answerState answers where the share stands.
	answerState(a *exchange.Reply, r *http.Request) error
	// read serves a list or a watch of a resource.
	read(w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource) error
	// accepts returns why nobody may push a resource; nil means that some may.
	accepts(resource schema.GroupVersionResource) error
	// begin checks all of a push but its body, and may set lasts.
	begin(r *http.Request, p *push) (taker, error)
}

// taker takes the batches of one push.
type taker interface {
	// event checks the next event of a batch, and reports whether it is the last. Its errors are refusals.
	event(e stream.Event, t stream.Type) (last bool, err error)
	// apply applies a batch, which has all events since the last one. io.EOF means that it has none, and is not answered.
	apply(ctx context.Context, t stream.Type) (edge.Taken, error)
	// end frees what the push holds. It may be called more than once.
	end()
}

// push is a push as its request says it.
type push struct {
	node     edge.NodeName // the pusher
	resource schema.GroupVersionResource
	history  edge.History // in which all its revisions count
	encoding stream.Encoding
	query    url.Values
	// lasts says that the push has as many batches as there are, each answered as it comes. Otherwise it is one batch.
	lasts bool
}

func newShare(path string, is rules, most int64, stalled time.Duration) *share {
	return &share{
		path: path, rules: is, nodes: nodeidentifier.NewDefaultNodeIdentifier(), stalled: stalled, most: most, wait: pushWait,
		slots: make(chan struct{}, maxPushes), following: map[schema.GroupVersionResource]context.CancelCauseFunc{},
	}
}

// closeLocked ends the pushes that last, and refuses further ones. The caller holds mu.
func (s *share) closeLocked() {
	s.closed = true
	for _, end := range s.following {
		end(errStopping)
	}
}

// MayLast reports whether a request may exceed kube-apiserver's time limit: a push, or a watch of the mirror.
func MayLast(r *http.Request) bool {
	mirrored := strings.HasPrefix(r.URL.Path, edge.PathMirror+"/")
	switch r.Method {
	case http.MethodGet:
		watch, err := strconv.ParseBool(r.URL.Query().Get("watch"))
		return mirrored && watch && err == nil
	case http.MethodPost:
		return mirrored || strings.HasPrefix(r.URL.Path, edge.PathOwn+"/")
	default:
		return false
	}
}

// ServeHTTP implements http.Handler. kube-apiserver has already authenticated the caller and asked RBAC.
func (s *share) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &exchange.Reply{ResponseWriter: w}
	if err := s.serve(a, r); err != nil {
		a.Refuse(r.Context(), err)
	}
}

func (s *share) serve(a *exchange.Reply, r *http.Request) error {
	below := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, s.path), "/")
	if below == "" && r.Method == http.MethodGet {
		return s.rules.answerState(a, r)
	}
	resource, err := exchange.ParseResource(below)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet:
		return s.rules.read(a.ResponseWriter, r, resource)
	case http.MethodPost:
		return s.push(a, r, resource)
	default:
		return exchange.Refused(http.StatusMethodNotAllowed, "GET or POST below %s, not %s", s.path, r.Method)
	}
}

// caller returns the node that a request is of.
func (s *share) caller(r *http.Request) (edge.NodeName, error) {
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return "", exchange.Refused(http.StatusForbidden, "only a node has objects to push")
	}
	name, isNode := s.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return "", exchange.Refused(http.StatusForbidden, "only a node has objects to push, and %q is not one", caller.GetName())
	}
	return edge.NodeName(name), nil
}

// push takes the batches of a push, for as long as it lasts.
func (s *share) push(a *exchange.Reply, r *http.Request, resource schema.GroupVersionResource) error {
	p, err := s.mayPush(r, resource)
	if err != nil {
		return err
	}
	to, err := s.rules.begin(r, p)
	if err != nil {
		return err
	}
	defer to.end()
	ctx, body, end, err := s.open(a.ResponseWriter, r, p)
	if err != nil {
		return err
	}
	defer end()
	frames := stream.NewFrameReader(body, p.encoding, exchange.MaxFrame)
	for ended := false; !ended; {
		var taken edge.Taken
		if ended, err = readBatch(frames, to); err == nil {
			if ended { // others may be read while this is applied
				end()
				ctx = r.Context()
			}
			taken, err = to.apply(ctx, frames.Type())
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if why := (*exchange.Refusal)(nil); errors.As(context.Cause(ctx), &why) {
				return why // it failed because the push was ended
			}
			return err
		}
		if err := a.Tell(http.StatusOK, taken); err != nil || ended {
			return err
		}
		if err := body.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// mayPush checks what the rules have no part in.
func (s *share) mayPush(r *http.Request, resource schema.GroupVersionResource) (*push, error) {
	p := &push{resource: resource, query: r.URL.Query()}
	var err error
	if p.node, err = s.caller(r); err != nil {
		return nil, err
	}
	if err := s.rules.accepts(resource); err != nil {
		return nil, err
	}
	if p.history, err = edge.ParseHistory(r.Header.Get(edge.HeaderHistory)); err != nil {
		return nil, exchange.Refused(http.StatusBadRequest, "%s: %v", edge.HeaderHistory, err)
	}
	if p.encoding, err = stream.EncodingOf(r.Header.Get("Content-Type")); err != nil {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push a watch stream: %v", err)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push without Content-Encoding")
	}
	return p, nil
}

// readBatch reads the next batch, and reports whether the push ends with it.
func readBatch(frames *stream.FrameReader, to taker) (ended bool, err error) {
	for last := false; !last; {
		event, err := frames.Read()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if errors.Is(err, stream.ErrEventTooLarge) {
			return false, exchange.Refused(http.StatusRequestEntityTooLarge,
				"an object of the push has more than %d bytes; leave it out, nothing of its batch was changed", exchange.MaxFrame)
		}
		if err != nil {
			return false, exchange.Unreadable(err)
		}
		if last, err = to.event(event, frames.Type()); err != nil {
			return false, err
		}
	}
	return false, nil
}

// open returns the context of a push, and its body. The function end frees what the body takes, and may be called more than once.
// A push that lasts ends when the next such push of its resource begins, and when the share closes. So a new leader never waits
// for a former leader's push to end.
func (s *share) open(
	w http.ResponseWriter, r *http.Request, p *push,
) (ctx context.Context, body *exchange.Body, end func(), err error) {
	if !p.lasts {
		return s.openOne(w, r)
	}
	if r.ProtoMajor < 2 { // such a server reads before it answers
		return nil, nil, nil, exchange.Refused(http.StatusHTTPVersionNotSupported,
			"push changes over HTTP/2, to be answered meanwhile")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil, errStopping
	}
	ctx, stop := context.WithCancelCause(r.Context())
	if last := s.following[p.resource]; last != nil {
		last(errSuperseded)
	}
	s.following[p.resource] = stop
	body = exchange.NewBody(r.Context(), w, r.Body, s.stalled*quietFactor)
	cut := context.AfterFunc(ctx, body.Cut)
	return ctx, body, func() { cut(); body.Leave(); stop(nil) }, nil
}

// openOne opens a push of one batch.
func (s *share) openOne(
	w http.ResponseWriter, r *http.Request,
) (ctx context.Context, body *exchange.Body, end func(), err error) {
	wait := time.NewTimer(s.wait)
	defer wait.Stop()
	select {
	case s.slots <- struct{}{}:
	case <-wait.C:
		return nil, nil, nil, &exchange.Refusal{
			Code: http.StatusTooManyRequests, RetryAfter: time.Second,
			Message: fmt.Sprintf("%d pushes are under way; push again", maxPushes),
		}
	case <-r.Context().Done():
		return nil, nil, nil, context.Cause(r.Context())
	}
	ctx, stop := context.WithTimeoutCause(r.Context(), exchange.PushTimeout, exchange.ErrTooLong)
	body = exchange.NewBody(r.Context(), w, http.MaxBytesReader(w, r.Body, s.most), s.stalled)
	cut := context.AfterFunc(ctx, body.Cut)
	return ctx, body, sync.OnceFunc(func() { cut(); body.Leave(); stop(); <-s.slots }), nil
}
