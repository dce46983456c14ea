// Package remote reads streams from an API server over HTTP: the cloud's, or a coordinator's mirror.
//
// A Source holds no connection, and no state but the type of the objects. A Snapshot or a Page is one list request, and a Watch
// is one watch request. A Source never retries by itself. How long to wait depends on which other sources the caller has, which
// this package does not know.
//
// Invariants: nothing waits without a limit (the constants from listTime on). Every opened body is closed. A watch returns rising
// revisions or ends with an error.
//
// There is no goroutine between the connection and Next. A reading goroutine would gather bigger batches while a batch is being
// handled, but would be a second queue behind the connection's own window.
package remote

import (
	"cmp"
	"compress/gzip"
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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/stream"
)

// Limits.
const (
	// listTime is how long a list may take in all: enough for 28 MB at 128 kbit/s.
	listTime = 30 * time.Minute
	// stallTime is how long a list may bring no bytes. API servers take at most a minute for an answer.
	stallTime = time.Minute
	// listBytes is the default of Config.ListBytes.
	listBytes = 256 << 20
	// openTime is how long the answer to a watch request may take to begin. API servers answer at once.
	openTime = 30 * time.Second
	// idleTime is how long a watch may be silent. API servers send a bookmark every minute.
	idleTime = 5 * time.Minute
	// frameBytes is how large an event may be; etcd's own limit is 1.5 MiB unless configured.
	frameBytes = 8 << 20
	// errorBytes bounds how much of an unsuccessful answer is read.
	errorBytes = 64 << 10
	// maxRetry is how long a server may ask for patience, in seconds.
	maxRetry = 3600
	// watchTime is how long a server is asked to keep a watch, unless Config says. client-go asks for the same.
	watchTime = 5 * time.Minute
	// batchEvents and batchBytes bound what one Next returns.
	batchEvents = 256
	batchBytes  = 1 << 20
)

var (
	errClosed = errors.New("the watch was closed")
	errIdle   = fmt.Errorf("no event and no bookmark for %v", idleTime)
	errStall  = fmt.Errorf("nothing of the list has come for %v", stallTime)
	errOpen   = fmt.Errorf("no answer for %v", openTime)
)

// Config says what to read.
type Config struct {
	// Client makes the requests; nil means http.DefaultClient. Its Timeout must be 0, because a timeout would end every watch.
	// Redirects are not followed, because an API server sends none.
	Client *http.Client
	// Base is the server's address. A path in it is kept in front of Path.
	Base *url.URL
	// Path is that of the resource's collection, such as "/apis/discovery.k8s.io/v1/endpointslices".
	Path string
	// FieldSelector and LabelSelector limit what is read; empty is all of it.
	FieldSelector, LabelSelector string
	// Name is how errors name the server, such as "cloud".
	Name string
	// WatchTime is the least time for which the server is asked to keep a watch; 0 means 5 minutes. The time asked for is random,
	// up to twice WatchTime, so that watches that began together do not end together. A watch must end from time to time, because
	// it keeps the rights that its client had when it began.
	WatchTime time.Duration
	// ListBytes bounds a list, uncompressed. Snapshot fails with stream.ErrTooLarge once it has read more. 0 means 256 MiB.
	ListBytes int64
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// Source is a stream.Source over HTTP. Safe for concurrent use.
type Source struct {
	client     *http.Client
	collection url.URL
	selectors  url.Values
	name       string
	listBytes  int64
	watchTime  time.Duration
	chance     ends.Chance

	mu  sync.Mutex
	typ stream.Type // of the last Snapshot, or of the first event; Kind is empty before
}

// New makes a Source. It sends nothing.
func New(c Config) *Source {
	client := http.Client{}
	if c.Client != nil {
		client = *c.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &Source{client: &client, collection: *c.Base, selectors: url.Values{}, name: c.Name,
		listBytes: cmp.Or(c.ListBytes, listBytes), watchTime: cmp.Or(c.WatchTime, watchTime), chance: c.Chance}
	if c.FieldSelector != "" {
		s.selectors.Set("fieldSelector", c.FieldSelector)
	}
	if c.LabelSelector != "" {
		s.selectors.Set("labelSelector", c.LabelSelector)
	}
	s.collection.Path, s.collection.RawPath = strings.TrimRight(c.Base.Path, "/")+c.Path, ""
	return s
}

// Snapshot lists. It asks for no resourceVersion, so it gets the newest state, and not that of a cache.
func (s *Source) Snapshot(ctx context.Context) (stream.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	snapshot, err := s.list(ctx)
	if err != nil {
		return stream.Snapshot{}, s.failed(ctx, "list", err)
	}
	return snapshot, nil
}

func (s *Source) list(ctx context.Context) (stream.Snapshot, error) {
	snapshot, rest, err := s.get(ctx, s.collection, url.Values{}, asTheyAre)
	if err != nil {
		return stream.Snapshot{}, err
	}
	if rest != "" {
		return stream.Snapshot{}, errors.New("the server gave a part of the list, without having been asked for parts")
	}
	s.mu.Lock()
	s.typ = snapshot.Type
	s.mu.Unlock()
	return snapshot, nil
}

// Page reads a part of a list, of up to limit objects. The parameter from is the token of the part; empty means the first one.
// The result rest is the token of the next part, and empty after the last one. All parts are of one revision, the newest when the
// first part was read. Page fails with stream.ErrExpired when the server no longer remembers that revision.
func (s *Source) Page(ctx context.Context, limit int, from string) (part stream.Snapshot, rest string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if from != "" {
		query.Set("continue", from)
	}
	if part, rest, err = s.get(ctx, s.collection, query, asTheyAre); err != nil {
		return stream.Snapshot{}, "", s.failed(ctx, "list a part of", err)
	}
	s.mu.Lock()
	s.typ = part.Type
	s.mu.Unlock()
	return part, rest, nil
}

// get requests a list. It returns the list, and the continue token if there is more.
func (s *Source) get(
	ctx context.Context, from url.URL, query url.Values, accept string,
) (all stream.Snapshot, rest string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTime, func() { cancel(errStall) })
	defer stalled.Stop()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	response, err := s.ask(ctx, from, query, accept, "gzip", 0)
	if err != nil {
		return all, "", err
	}
	defer response.Body.Close()
	response.Body = &moving{response.Body, stalled}
	encoding, err := stream.EncodingOf(response.Header.Get("Content-Type"))
	if err != nil {
		return all, "", err
	}
	body, err := plain(response)
	if err != nil {
		return all, "", err
	}
	if all, rest, err = stream.ReadList(body, encoding, s.listBytes); err == nil {
		all.History, err = edge.ParseHistory(response.Header.Get(edge.HeaderHistory))
	}
	return all, rest, err
}

// Look returns the server's revision, and the revision of one object of the collection or 0 if there is no such object. The zero
// key means the first object. The parameter at is the revision at which to look; 0 means now. Look fails with stream.ErrExpired
// for a revision that the server no longer remembers. It asks only for the object's metadata.
func (s *Source) Look(ctx context.Context, key stream.Key, at edge.Revision) (current, object edge.Revision, err error) {
	query := url.Values{"limit": {"1"}}
	if at != 0 {
		query.Set("resourceVersion", at.String())
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	}
	snapshot, err := s.look(ctx, key, query)
	if err != nil {
		return 0, 0, s.failed(ctx, "look for "+key.String()+" in", err)
	}
	for _, o := range snapshot.Objects {
		if o.Key == key || key == (stream.Key{}) {
			object = o.Revision
		}
	}
	return snapshot.Revision, object, nil
}

func (s *Source) look(ctx context.Context, key stream.Key, query url.Values) (stream.Snapshot, error) {
	one := "metadata.name=" + key.Name
	in := s.collection
	if key.Namespace != "" && !strings.Contains(in.Path, "/namespaces/") {
		slash := strings.LastIndexByte(in.Path, '/')
		in.Path = in.Path[:slash] + "/namespaces/" + key.Namespace + in.Path[slash:] // one key, not a search
	}
	switch selected := s.selectors.Get("fieldSelector"); {
	case key.Name == "":
	case selected == "":
		query.Set("fieldSelector", one)
	case !strings.Contains(selected, "metadata.name="): // else there is one at most
		query.Set("fieldSelector", selected+","+one)
	}
	snapshot, _, err := s.get(ctx, in, query, metadataOnly)
	return snapshot, err
}

// Watch asks for changes. ctx bounds the asking; the watch itself lasts until Close or an error of Next.
func (s *Source) Watch(ctx context.Context, after edge.Revision) (stream.Watch, error) {
	w, _, err := s.WatchIn(ctx, 0, after)
	return w, err
}

// WatchIn asks a mirror for changes after a revision of a history, as Watch does. It also returns the revision that the mirror
// has reached; 0 if the mirror does not say. It fails with stream.ErrExpired if the mirror is in another history of the cloud.
func (s *Source) WatchIn(
	ctx context.Context, in edge.History, after edge.Revision,
) (stream.Watch, edge.Revision, error) {
	if after == 0 {
		return nil, 0, s.failed(ctx, "watch", errors.New("want a revision to begin after; list first"))
	}
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	late := time.AfterFunc(openTime, func() { cancel(errOpen) })
	response, err := s.ask(life, s.collection, url.Values{
		"watch":               {"1"},
		"resourceVersion":     {after.String()},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {strconv.Itoa(int((s.watchTime + s.chance.Below(s.watchTime)) / time.Second))},
	}, asTheyAre, "identity", in)
	unlink()
	late.Stop()
	if err == nil {
		var w *watch
		if w, err = s.open(life, cancel, response, after); err == nil {
			at, _ := edge.ParseRevision(response.Header.Get(edge.HeaderRevision)) // an API server does not say
			return w, at, nil
		}
		response.Body.Close()
	}
	err = s.failed(life, "watch", err)
	cancel(errClosed)
	return nil, 0, err
}

// open makes a watch of an answer.
func (s *Source) open(
	life context.Context, cancel context.CancelCauseFunc, r *http.Response, after edge.Revision,
) (*watch, error) {
	if life.Err() != nil { // the limits of the opening struck as it ended
		return nil, context.Cause(life)
	}
	encoding, err := stream.EncodingOf(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, fmt.Errorf("the watch is encoded as %q, unasked", coding)
	}
	idle := time.AfterFunc(idleTime, func() { cancel(errIdle) })
	idle.Stop() // until Next waits
	return &watch{
		source: s, life: life, cancel: cancel, body: r.Body,
		frames: stream.NewFrameReader(r.Body, encoding, frameBytes), last: after, idle: idle,
	}, nil
}

// asTheyAre is the Accept header for objects as they are, in either encoding. metadataOnly prefers their metadata alone.
const (
	asTheyAre    = "application/vnd.kubernetes.protobuf,application/json"
	metadata     = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"
	metadataOnly = "application/vnd.kubernetes.protobuf" + metadata + "application/json" + metadata + asTheyAre
)

// ask sends a request. What is no success becomes an error. The answer's body must be closed.
func (s *Source) ask(
	ctx context.Context, to url.URL, query url.Values, accept, coding string, in edge.History,
) (*http.Response, error) {
	for name, values := range s.selectors {
		if !query.Has(name) {
			query[name] = values
		}
	}
	to.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	// Set here, so that the transport neither asks for what a watch must not have nor undoes it without a limit.
	request.Header.Set("Accept-Encoding", coding)
	if in != 0 {
		request.Header.Set(edge.HeaderHistory, in.String())
	}
	response, err := s.client.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) { // it repeats the address
			err = wrapped.Err
		}
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusal(response)
}

// moving is a body that must not stall.
type moving struct {
	io.ReadCloser
	stalled *time.Timer
}

func (m *moving) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 {
		m.stalled.Reset(stallTime)
	}
	return n, err
}

// plain is an answer's body without its compression.
func plain(response *http.Response) (io.Reader, error) {
	switch coding := response.Header.Get("Content-Encoding"); coding {
	case "", "identity":
		return response.Body, nil
	case "gzip":
		body, err := gzip.NewReader(response.Body)
		if err != nil {
			return nil, fmt.Errorf("decompress the answer: %w", err)
		}
		return body, nil
	default:
		return nil, fmt.Errorf("the answer is encoded as %q: want gzip", coding)
	}
}

// refusal makes an error from an unsuccessful answer: from the Status in its body, or from its code alone.
func refusal(response *http.Response) error {
	var retry int
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		retry = min(seconds, maxRetry)
	}
	status, err := readStatus(response)
	if err != nil || status.Status == metav1.StatusSuccess || int(status.Code) != response.StatusCode {
		// Not "could not read": proxies and old servers answer with text, and the code says enough.
		status = apierrors.NewGenericServerResponse(
			response.StatusCode, http.MethodGet, schema.GroupResource{}, "", "", retry, true).Status()
		status.Message = fmt.Sprintf("%s (no Status of Kubernetes: %s)", response.Status, response.Header.Get("Content-Type"))
	}
	if retry > 0 {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		if status.Details.RetryAfterSeconds == 0 {
			status.Details.RetryAfterSeconds = int32(retry)
		}
	}
	return stream.ErrorOf(&status)
}

func readStatus(response *http.Response) (metav1.Status, error) {
	body, err := plain(response)
	if err != nil {
		return metav1.Status{}, err
	}
	data, err := io.ReadAll(io.LimitReader(body, errorBytes))
	if err != nil {
		return metav1.Status{}, err
	}
	return stream.ReadStatus(data)
}

// continues fails if objects of this type cannot follow those read before: one stream must not mix two types.
func (s *Source) continues(t stream.Type) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.typ.Kind != "" && s.typ != t {
		return fmt.Errorf("%w: the server changed from %s as %v to %s as %v",
			stream.ErrExpired, s.typ.GroupVersionKind, s.typ.Encoding, t.GroupVersionKind, t.Encoding)
	}
	s.typ = t
	return nil
}

// failed adds the source to an error. If the operation's context has ended, the error is the context's cause.
func (s *Source) failed(ctx context.Context, did string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %s %s: %w", s.name, did, s.collection.Path, err)
}

// watch is one watch request.
type watch struct {
	source *Source
	life   context.Context // the request's own, which ends for one of several causes
	cancel context.CancelCauseFunc
	body   io.Closer
	frames *stream.FrameReader
	last   edge.Revision
	typed  bool
	events []stream.Event
	failed error

	// idle ends the watch when it is silent for too long; it runs while Next waits.
	idle *time.Timer
}

// Next returns what the connection has delivered.
func (w *watch) Next(ctx context.Context) ([]stream.Event, error) {
	clear(w.events) // so that the buffer does not keep objects that nobody else keeps
	w.events = w.events[:0]
	if w.failed == nil {
		w.failed = w.fill(ctx)
	}
	if len(w.events) > 0 {
		return w.events, nil
	}
	w.body.Close()
	return nil, w.failed
}

// fill reads at least one event and all others that are buffered, or returns why there are no more.
func (w *watch) fill(ctx context.Context) error {
	if !w.frames.Buffered() {
		stop := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
		defer stop()
		w.idle.Reset(idleTime)
		defer w.idle.Stop()
	}
	if ctx.Err() != nil {
		w.cancel(context.Cause(ctx))
	}
	if w.life.Err() != nil {
		return w.broken(w.life.Err())
	}
	for size := 0; len(w.events) < batchEvents && size < batchBytes; {
		event, err := w.frames.Read()
		if err == nil {
			err = w.check(&event)
		}
		if err != nil {
			return w.broken(err)
		}
		w.events = append(w.events, event)
		size += len(event.Object.Raw)
		if !w.frames.Buffered() {
			break
		}
	}
	return nil
}

// check fails if the server breaks the order of revisions. Such a server has lost its store, is another cluster, or repeats
// events. In each case a new Snapshot is needed, because the events read so far do not fit what follows.
func (w *watch) check(event *stream.Event) error {
	if !w.typed {
		if err := w.source.continues(w.frames.Type()); err != nil {
			return err
		}
		w.typed = true
	}
	bookmark := event.Type == stream.Bookmark || event.Type == stream.InitialEventsEnd
	if bookmark {
		event.Type = stream.Bookmark
	}
	revision := event.Object.Revision
	if revision < w.last || revision == w.last && !bookmark {
		return fmt.Errorf("%w, or so it seems: the server told revision %s after %s (%s)",
			stream.ErrExpired, revision, w.last, strings.TrimSpace(event.Type.String()+" "+event.Object.Key.String()))
	}
	w.last = revision
	return nil
}

// broken is what the watch ended with.
func (w *watch) broken(err error) error {
	if errors.Is(err, io.EOF) && w.life.Err() == nil {
		return io.EOF // the server's timeoutSeconds are over
	}
	return w.source.failed(w.life, "watch", err)
}

// Close ends the request, and a Next that waits.
func (w *watch) Close() error {
	w.cancel(errClosed)
	return w.body.Close()
}
