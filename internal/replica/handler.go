package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/stream"
)

// Times. Where an API server has the same time, the value is the API server's.
const (
	defaultWait = 10 * time.Second
	// freshWait is how long a request waits for a revision that the replica has not reached.
	freshWait = 3 * time.Second
	// expiryWait bounds BeforeExpired.
	expiryWait = 3 * time.Second
	// writeTimeout is how long one write to a client may take; a client that takes longer is cut off.
	writeTimeout = 30 * time.Second
)

// HandlerConfig is what a Handler needs.
type HandlerConfig struct {
	// Replica is what is served. Required.
	Replica *Replica
	// View is what the clients of this handler see; nil is everything, verbatim.
	View View
	// Wait is how long a request waits for the replica to be complete before it is refused with 503. 0 means 10 s.
	Wait time.Duration
	// Prompt makes watches get a bookmark at once when the replica's revision moves without a change of an object. Otherwise
	// watches get bookmarks about once a minute, as from an API server.
	Prompt bool
	// BeforeExpired is called before a watching client is told to list again. The client then forgets its revision. So
	// BeforeExpired must make sure that everything that this handler has shown the client survives a crash. Otherwise the
	// client's next list could go back in time. The context bounds the call.
	BeforeExpired func(context.Context)
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// Request is what a request asks for; its options are those of the http.Request.
type Request struct {
	// Verb is get, list or watch.
	Verb string
	// Namespace is empty for all namespaces. Name is the object to get, or the only one to list or watch; otherwise empty.
	Namespace, Name string
	// Selected says that the replica holds only the objects that the client's selectors select. The http.Request then has none of
	// these selectors.
	Selected bool
	// Elsewhere says that the client's next request would go to the cloud. A watch then ends in an orderly way before it would
	// show an object in a poorer form than the cloud does (Handler.Poorer).
	Elsewhere bool
}

// Handler serves get, list and watch of a replica's resource, as an API server does from its watch cache. A read without a
// resourceVersion returns the replica's content, which may be behind the cloud.
type Handler struct {
	config  HandlerConfig
	replica *Replica
	group   schema.GroupResource
	log     klog.Logger
	looks   looks
	pages   pages
	warned  atomic.Pointer[warning]
	skew    skew
}

// NewHandler returns a Handler.
func NewHandler(c HandlerConfig) *Handler {
	c.Wait = cmp.Or(c.Wait, defaultWait)
	resource := c.Replica.Resource().GroupResource()
	return &Handler{config: c, replica: c.Replica, group: resource, log: klog.Background().WithValues("resource", resource)}
}

// Serve answers one request. The request's context ends it. Its caller has authenticated and authorized it.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, q Request) {
	out := &deadlined{ResponseWriter: w, control: http.NewResponseController(w), warning: h.warning}
	defer out.rest()
	w.Header().Set("Cache-Control", "no-cache, private") // as an API server does for all who are somebody
	if err := h.serve(out, r, q); err != nil {
		h.fail(out, r, err)
	}
}

// serve returns an error only if nothing has been written yet.
func (h *Handler) serve(w *deadlined, r *http.Request, q Request) error {
	switch q.Verb {
	case "get":
		return h.get(w, r, q)
	case "list", "watch":
		options, err := optionsOf(r, q, h.group)
		if err != nil {
			return err
		}
		if options.Watch {
			return h.watch(w, r, options)
		}
		return h.list(w, r, options)
	default:
		return apierrors.NewMethodNotSupported(h.group, q.Verb)
	}
}

// ready waits until there is something to serve.
func (h *Handler) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.config.Wait)
	defer cancel()
	if _, err := h.replica.complete.Wait(ctx, func(complete bool) bool { return complete }); err != nil {
		return h.notReady()
	}
	return nil
}

func (h *Handler) notReady() error {
	err := unavailable(fmt.Sprintf("%s are not complete here yet; try again", h.group))
	err.ErrStatus.Details.Group, err.ErrStatus.Details.Kind = h.group.Group, h.group.Resource
	return err
}

// reach waits until the replica has reached a revision.
func (h *Handler) reach(ctx context.Context, revision edge.Revision) error {
	ctx, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	position, err := h.replica.reach(ctx, revision)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return tooLarge(revision, position)
	default:
		return h.notReady()
	}
}

// reach waits until Position is at least revision, and returns it.
func (r *Replica) reach(ctx context.Context, revision edge.Revision) (edge.Revision, error) {
	for {
		r.mu.Lock()
		position, closed := r.position, r.closed
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		switch {
		case closed:
			return position, ErrClosed
		case position >= revision:
			return position, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return position, context.Cause(ctx)
		}
	}
}

// tooLarge returns the error by which client-go recognizes that it is ahead of this server.
func tooLarge(revision, position edge.Revision) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, position), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

// tooOld returns an answer of 410, with the cause in words.
func tooOld(format string, args ...any) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf(format, args...))
}

// revisionOf reads the option resourceVersion. For "" and "0" it returns 0, which means any revision. If a view has made the
// given revision, viewed is true, and revision is the object's own revision in the cloud.
func revisionOf(option string) (revision edge.Revision, viewed bool, err error) {
	if option == "" || option == "0" {
		return 0, false, nil
	}
	given, err := edge.ParseRevision(option)
	if err != nil {
		return 0, false, apierrors.NewBadRequest(err.Error())
	}
	revision, viewed = given.Own()
	return revision, viewed, nil
}

// get answers with one object.
func (h *Handler) get(w *deadlined, r *http.Request, q Request) error {
	revision, _, err := revisionOf(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if err := h.ready(r.Context()); err != nil {
		return err
	}
	if err := h.reach(r.Context(), revision); err != nil {
		return err
	}
	o, ok, t, at := h.replica.lookup(stream.Key{Namespace: q.Namespace, Name: q.Name})
	if at == 0 {
		return h.notReady()
	}
	f, err := negotiate(r, q.Verb, t)
	if err != nil {
		return err
	}
	if look, _, _ := h.look(); ok && look != nil {
		if o, ok, err = ShownBy(look, t, o); err != nil {
			return err
		}
	}
	if !ok {
		return apierrors.NewNotFound(h.group, q.Name)
	}
	if o, err = f.object(o, true); err != nil {
		return err
	}
	h.answer(w, r, http.StatusOK, f.to.Encoding, stream.Envelope(f.to, o.Raw))
	return nil
}

// answer writes a body that is there already.
func (h *Handler) answer(w *deadlined, r *http.Request, status int, e stream.Encoding, body []byte) {
	z := newCompressor(w, r, status, e)
	if _, err := z.Write(body); err == nil {
		_ = z.Close() // the client has gone; there is nobody to tell
	}
}

// fail answers with an error.
func (h *Handler) fail(w *deadlined, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	s := h.statusOf(err)
	if d := s.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	e := errorEncoding(r)
	body, err := stream.WriteStatus(e, s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.answer(w, r, int(s.Code), e, body)
}

// statusOf turns an error into a Kubernetes Status. It logs errors that no client has caused.
func (h *Handler) statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
	case errors.Is(err, stream.ErrExpired):
		known = tooOld("%s", err)
	case errors.Is(err, stream.ErrNotReady):
		known = apierrors.NewServiceUnavailable(err.Error())
	default:
		h.log.Error(err, "An object cannot be written as a client asked")
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	return &s
}
