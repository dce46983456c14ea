package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

const (
	// changesFrom is the parameter of a push of changes: the revision that they follow.
	changesFrom = "from"
	// maxPushes bounds how many pushes of everything are read at a time: one leader pushes one resource at a time.
	maxPushes = 8
	// quietFactor is how much longer than StallTimeout a push of changes may stay silent, because its pusher sends a sign of life
	// only every 10 s.
	quietFactor = 3
)

var (
	errStopping error = &exchange.Refusal{
		Code: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "the coordinator is stopping",
	}
	errSuperseded = exchange.Refused(http.StatusConflict, "another push of changes to the same resource has begun")
)

// push takes a watch stream: everything, or the changes after a revision, batch by batch, for as long as the stream lasts. It
// reads each batch to its end before it changes anything, so a batch that breaks off, stalls or is malformed has no effect. It
// checks who leads before the first batch, and again for each batch.
func (m *Mirror) push(a *exchange.Reply, r *http.Request, resource schema.GroupVersionResource) error {
	p, err := m.mayPush(r, resource)
	if err != nil {
		return err
	}
	each, err := m.getOrMake(resource)
	if err != nil {
		return err
	}
	// Checked before reading, so that nobody sends what will be refused.
	if at := each.Position(); p.from != 0 && p.from != at {
		return notThere(p.from, at)
	}
	ctx, body, release, err := m.open(a.ResponseWriter, r, resource, p.from)
	if err != nil {
		return err
	}
	defer release()
	frames := stream.NewFrameReader(body, p.encoding, exchange.MaxFrame)
	for {
		at, ended, err := m.batch(ctx, each, frames, p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if why := (*exchange.Refusal)(nil); errors.As(context.Cause(ctx), &why) {
				return why // it failed because the push was ended
			}
			return err
		}
		if err := a.Tell(http.StatusOK, acknowledgement{exchange.Decimal(at)}); err != nil || ended {
			return err
		}
		if err := body.Flush(); err != nil {
			return err
		}
		p = &pushed{from: at, history: p.history, encoding: p.encoding, holds: p.holds, take: m.reserve}
	}
}

// mayPush checks all of a push except its body.
func (m *Mirror) mayPush(r *http.Request, resource schema.GroupVersionResource) (*pushed, error) {
	claim, err := m.claimOf(r)
	if err != nil {
		return nil, err
	}
	if err := m.mayBeMirrored(resource); err != nil {
		return nil, err
	}
	p := &pushed{take: m.reserve}
	if p.history, err = edge.ParseHistory(r.Header.Get(edge.HeaderHistory)); err != nil {
		return nil, exchange.Refused(http.StatusBadRequest, "%s: %v", edge.HeaderHistory, err)
	}
	may := m.leads
	if p.history.IsFilled() {
		may = m.fills
	}
	p.holds = func(ctx context.Context) error { return may(ctx, claim.node, claim.term) }
	if err := p.holds(r.Context()); err != nil {
		return nil, err
	}
	if p.from, err = fromOf(r); err != nil {
		return nil, err
	}
	if p.from != 0 && p.history.IsFilled() {
		return nil, exchange.Refused(http.StatusUnprocessableEntity, "a filler pushes everything, not changes")
	}
	if p.encoding, err = stream.EncodingOf(r.Header.Get("Content-Type")); err != nil {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push a watch stream: %v", err)
	}
	if p.from != 0 && r.ProtoMajor < 2 { // such a server reads before it answers
		return nil, exchange.Refused(http.StatusHTTPVersionNotSupported,
			"push changes over HTTP/2, to be answered meanwhile")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push without Content-Encoding")
	}
	return p, nil
}

// open returns the body, and the context of the push. A push of changes ends when the next one of its resource begins, and when
// the mirror closes. So each resource has at most one, and no leader waits for a former leader's push.
func (m *Mirror) open(
	w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource, from edge.Revision,
) (context.Context, *exchange.Body, func(), error) {
	if from == 0 {
		select {
		case m.pushes <- struct{}{}:
			body := exchange.NewBody(r.Context(), w, http.MaxBytesReader(w, r.Body, m.quota+exchange.MaxFrame), m.stalled)
			ctx, end := context.WithTimeoutCause(r.Context(), exchange.PushTimeout, exchange.ErrTooLong)
			context.AfterFunc(ctx, body.Cut)
			return ctx, body, func() { body.Leave(); end(); <-m.pushes }, nil
		default:
			return nil, nil, nil, &exchange.Refusal{
				Code: http.StatusTooManyRequests, RetryAfter: time.Second,
				Message: fmt.Sprintf("%d pushes are under way; push one after the other", maxPushes),
			}
		}
	}
	body := exchange.NewBody(r.Context(), w, r.Body, m.stalled*quietFactor)
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
	stop := context.AfterFunc(ctx, body.Cut)
	return ctx, body, func() { stop(); body.Leave(); end(nil) }, nil
}

// batch takes what is applied at once. It returns the mirror's position after that, and whether that was all.
func (m *Mirror) batch(
	ctx context.Context, each *mirrored, frames *stream.FrameReader, p *pushed,
) (at edge.Revision, ended bool, err error) {
	defer func() { m.give(p.taken) }()
	if ended, err = each.read(frames, p); err != nil {
		return 0, ended, err
	}
	at, err = each.apply(ctx, p, m.clock.Running())
	return at, ended, err
}

// acknowledgement answers a push: how far the mirror has come.
type acknowledgement struct {
	Applied string `json:"applied"` // "0" means nothing
}

// claim is a pusher's name, and the term under which it claims to lead, or the turn under which it claims to fill.
type claim struct {
	node edge.NodeName
	term int32
}

func (m *Mirror) claimOf(r *http.Request) (claim, error) {
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return claim{}, exchange.Refused(http.StatusForbidden, "only a node may push")
	}
	name, isNode := m.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return claim{}, exchange.Refused(http.StatusForbidden, "only a node may push, and %q is not one", caller.GetName())
	}
	term, err := strconv.ParseInt(r.URL.Query().Get("term"), 10, 32)
	if err != nil {
		return claim{}, exchange.Refused(http.StatusBadRequest,
			"term must be the leaseTransitions of the Lease %s under which the "+
				"caller leads, or of %s", edge.LeaseElection, edge.LeaseFiller)
	}
	return claim{edge.NodeName(name), int32(term)}, nil
}

// fromOf returns the revision that a push of changes follows; 0 means a push of everything.
func fromOf(r *http.Request) (edge.Revision, error) {
	query := r.URL.Query()
	if !query.Has(changesFrom) {
		return 0, nil
	}
	from, err := edge.ParseRevision(query.Get(changesFrom))
	if err != nil {
		return 0, exchange.Refused(http.StatusBadRequest, "from: %v; leave it out to push everything", err)
	}
	return from, nil
}

func notThere(from, at edge.Revision) error {
	return &exchange.Refusal{
		Code: http.StatusConflict, Applied: &at,
		Message: fmt.Sprintf("the mirror is at revision %d, not %d: push what follows that, or everything", at, from),
	}
}

// logPush logs a failure that is ours and not the pusher's.
func logPush(ctx context.Context, r schema.GroupVersionResource, err error) {
	klog.FromContext(ctx).Error(err, "Failed to write pushed objects to etcd; the pusher will retry",
		"resource", r.GroupResource().String())
}
