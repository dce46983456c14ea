package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// changesFrom is the parameter that makes a push one of changes: the revision that they follow.
	changesFrom = "from"
	// maxPushes bounds how many pushes of everything are read at the same time: one leader pushes, a resource at a time.
	maxPushes = 8
	// stalledPush is how long a body may bring nothing, wholePush how long one of everything may take in all. Neither is
	// left to kube-apiserver's own limit, which answers while its handler still reads.
	stalledPush, wholePush = 10 * time.Second, time.Minute
	// quietFactor is how much longer one of changes may: its pusher says every 10 s that it is still there.
	quietFactor = 3
	// lastWord is how long it may take to tell why a push of changes is ended.
	lastWord = time.Second
	// suspiciousRetry is when a refused snapshot is worth another try: three of them and GuardTime is passed.
	suspiciousRetry = 12 * time.Second
)

var (
	errStopping error = &refusal{
		code: http.StatusServiceUnavailable, retryAfter: time.Second, message: "the coordinator is stopping",
	}
	errTooLong    = refused(http.StatusRequestTimeout, "the push has taken more than %v; nothing was changed", wholePush)
	errSuperseded = refused(http.StatusConflict, "another push of changes to the same resource has begun")
)

// push takes a watch stream: everything, or, after a revision, changes for as long as there are any, batch by batch. Each
// is read to its end before anything is changed: one that breaks off, stalls or turns out to be malformed has done
// nothing. Who leads is asked before the first is read and for each again.
func (m *mirror) push(a *reply, r *http.Request, resource schema.GroupVersionResource) error {
	claim, p, err := m.mayPush(r, resource)
	if err != nil {
		return err
	}
	each, err := m.getOrMake(resource)
	if err != nil {
		return err
	}
	// Before reading, so that nobody sends what will not be taken.
	if at := each.Position(); p.from != 0 && p.from != at {
		return notThere(p.from, at)
	}
	ctx, body, release, err := m.open(a.ResponseWriter, r, resource, p.from)
	if err != nil {
		return err
	}
	defer release()
	frames := stream.NewFrameReader(body, p.encoding, maxFrame)
	for {
		at, ended, err := m.batch(ctx, each, frames, p, claim)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if why := (*refusal)(nil); errors.As(context.Cause(ctx), &why) {
				return why // what failed did so because the push was ended
			}
			return err
		}
		if err := a.tell(http.StatusOK, acknowledgement{decimal(at)}); err != nil || ended {
			return err
		}
		if err := body.control.Flush(); err != nil {
			return err
		}
		p = &pushed{from: at, encoding: p.encoding, take: m.take}
	}
}

// mayPush reads and checks all but the body.
func (m *mirror) mayPush(r *http.Request, resource schema.GroupVersionResource) (claim, *pushed, error) {
	claim, err := m.claimOf(r)
	if err != nil {
		return claim, nil, err
	}
	if err := m.mayBeMirrored(resource); err != nil {
		return claim, nil, err
	}
	if err := m.leads(r.Context(), claim); err != nil {
		return claim, nil, err
	}
	p := &pushed{take: m.take}
	if p.from, err = fromOf(r); err != nil {
		return claim, nil, err
	}
	if p.encoding, err = stream.EncodingOf(r.Header.Get("Content-Type")); err != nil {
		return claim, nil, refused(http.StatusUnsupportedMediaType, "push a watch stream: %v", err)
	}
	if p.from != 0 && r.ProtoMajor < 2 { // whose server reads before it answers
		return claim, nil, refused(http.StatusHTTPVersionNotSupported, "push changes over HTTP/2, to be answered meanwhile")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return claim, nil, refused(http.StatusUnsupportedMediaType, "push without Content-Encoding")
	}
	return claim, p, nil
}

// open returns the body, and the context in which it is pushed: one of changes ends when the next begins and when the
// mirror closes. So there is one for a resource, and no leader waits for what the last one has left behind.
func (m *mirror) open(
	w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource, from edge.Revision,
) (context.Context, *patient, func(), error) {
	body := &patient{body: r.Body, control: http.NewResponseController(w), limit: m.stalled}
	if from == 0 {
		body.body = http.MaxBytesReader(w, r.Body, m.quota+maxFrame)
		select {
		case m.pushes <- struct{}{}:
			ctx, end := context.WithTimeoutCause(r.Context(), wholePush, errTooLong)
			context.AfterFunc(ctx, body.cut)
			return ctx, body, func() { body.leave(); end(); <-m.pushes }, nil
		default:
			return nil, nil, nil, &refusal{
				code: http.StatusTooManyRequests, retryAfter: time.Second,
				message: fmt.Sprintf("%d pushes are under way; push one after the other", maxPushes),
			}
		}
	}
	body.limit *= quietFactor
	ctx, end := context.WithCancelCause(r.Context())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		end(nil)
		return nil, nil, nil, errStopping
	}
	if last := m.following[resource]; last != nil {
		last(errSuperseded)
	}
	m.following[resource] = end
	stop := context.AfterFunc(ctx, body.cut)
	return ctx, body, func() { stop(); body.leave(); end(nil) }, nil
}

// batch takes what is applied at once, and returns where the mirror stands then and whether that was all.
func (m *mirror) batch(
	ctx context.Context, each *mirrored, frames *stream.FrameReader, p *pushed, c claim,
) (at edge.Revision, ended bool, err error) {
	defer func() { m.give(p.taken) }()
	if ended, err = each.read(frames, p); err != nil {
		return 0, ended, err
	}
	at, err = each.apply(ctx, p, m.clock.Now(), func(ctx context.Context) error { return m.leads(ctx, c) })
	return at, ended, err
}

// claim is what a pusher says of itself.
type claim struct {
	node edge.NodeName
	term int32
}

func (m *mirror) claimOf(r *http.Request) (claim, error) {
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return claim{}, refused(http.StatusForbidden, "only a node may push")
	}
	name, isNode := m.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return claim{}, refused(http.StatusForbidden, "only a node may push, and %q is none", caller.GetName())
	}
	term, err := strconv.ParseInt(r.URL.Query().Get("term"), 10, 32)
	if err != nil {
		return claim{}, refused(http.StatusBadRequest, "term must be the leaseTransitions of the Lease %s under which the "+
			"caller leads", edge.LeaseElection)
	}
	return claim{edge.NodeName(name), int32(term)}, nil
}

// fromOf is 0 for everything.
func fromOf(r *http.Request) (edge.Revision, error) {
	query := r.URL.Query()
	if !query.Has(changesFrom) {
		return 0, nil
	}
	from, err := edge.ParseRevision(query.Get(changesFrom))
	if err != nil {
		return 0, refused(http.StatusBadRequest, "from: %v; leave it out to push everything", err)
	}
	return from, nil
}

func notThere(from, at edge.Revision) error {
	return &refusal{
		code: http.StatusConflict, applied: &at,
		message: fmt.Sprintf("the mirror is at revision %d, not %d: push what follows that, or everything", at, from),
	}
}

// patient reads a body, and cuts one that has stalled. Its deadlines are of the connection, so the real time.
type patient struct {
	body    io.Reader
	control *http.ResponseController
	limit   time.Duration

	mu   sync.Mutex
	set  time.Time // when the deadline was set
	over bool      // no deadline may be set any more
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.extend(); err != nil {
		return 0, err
	}
	n, err := p.body.Read(b)
	if errors.Is(err, io.EOF) {
		p.rest() // after any other error the connection must not wait
	}
	return n, err
}

// extend sets the deadline, unless there is nearly all of it left: it is not free.
func (p *patient) extend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.over:
		return os.ErrDeadlineExceeded
	case now.Sub(p.set) < p.limit/10:
		return nil
	}
	p.set = now
	// A connection that knows no deadline is bounded by the request's own.
	if err := p.control.SetReadDeadline(now.Add(p.limit)); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// rest takes the deadline away: the connection serves on.
func (p *patient) rest() {
	if p.leave() {
		_ = p.control.SetReadDeadline(time.Time{})
	}
}

// leave says that the request is over, and reports whether it was not yet.
func (p *patient) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.over
	p.over = true
	return !was
}

// cut ends a Read that waits, and before long an answer that nobody takes. It does nothing once the request is over.
func (p *patient) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		now := time.Now()
		_ = p.control.SetReadDeadline(now.Add(-time.Second))
		_ = p.control.SetWriteDeadline(now.Add(lastWord))
	}
}

// logPush tells of what went wrong on our side.
func logPush(ctx context.Context, r schema.GroupVersionResource, err error) {
	klog.FromContext(ctx).Error(err, "Writing pushed objects to etcd failed; the pusher will try again",
		"resource", r.GroupResource().String())
}
