package watchcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Config says what to record, and how. Only Client and URL are required.
type Config struct {
	// Client has the credentials. It must have no Timeout, which would end watches.
	Client *http.Client
	// URL is the collection's, e.g. https://127.0.0.1:6443/apis/discovery.k8s.io/v1/endpointslices.
	URL string
	// Protobuf asks for Protobuf instead of JSON; only for built-in types.
	Protobuf bool
	// WatchList begins with a watch that delivers all objects first (sendInitialEvents) instead of a list.
	WatchList bool
	// Agent is the User-Agent, by which endpoints may distinguish clients; empty means "watchcheck".
	Agent string
	// Timeout is the requested duration of a watch; 0 means 5 to 10 minutes at random, as in client-go's reflector.
	Timeout time.Duration
	// Silence is how long a watch may go without any event or bookmark before it is given up; 0 means 150 s, because API
	// servers send a bookmark every minute. It also bounds the reading of a list or of an answer's head.
	Silence time.Duration
	// Pause is the shortest time between two tries after a failure; 0 means 100 ms. It doubles with each failure, to at most 20
	// times.
	Pause time.Duration
	// Limit bounds the recorded events and list items; 0 means 500,000, some 100 MB.
	Limit int
}

// Recorder is a client that records what it is told. It is safe for concurrent use.
type Recorder struct {
	config Config
	url    *url.URL

	mu       sync.Mutex
	history  []Observation
	size     int
	full     bool
	position uint64
	grew     chan struct{} // closed when the history grows
}

// New returns a Recorder that has not begun.
func New(c Config) (*Recorder, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("URL of what to record: %w", err)
	}
	if c.Client == nil {
		return nil, errors.New("a recorder needs an HTTP client")
	}
	if c.Client.Timeout != 0 {
		return nil, errors.New("the HTTP client of a recorder must have no Timeout: it would end watches")
	}
	c.Silence = orDefault(c.Silence, 150*time.Second)
	c.Pause = orDefault(c.Pause, 100*time.Millisecond)
	c.Limit = orDefault(c.Limit, 500_000)
	c.Agent = orDefault(c.Agent, "watchcheck")
	return &Recorder{config: c, url: u, grew: make(chan struct{})}, nil
}

func orDefault[T comparable](v, standard T) T {
	var zero T
	if v == zero {
		return standard
	}
	return v
}

// Run records until ctx ends, and returns its cause. Another call continues where it was.
func (r *Recorder) Run(ctx context.Context) error {
	pause := r.config.Pause
	for ctx.Err() == nil {
		before := r.Position()
		err := r.once(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil, r.Position() != before:
			pause = r.config.Pause
		default:
			wait := time.NewTimer(pause/2 + rand.N(pause/2+1))
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
			wait.Stop()
			pause = min(2*pause, 20*r.config.Pause)
		}
	}
	return context.Cause(ctx)
}

// once lists, unless it can resume or begins with a watch-list, and watches until that watch is over. It records the error that
// broke the watch, and returns it.
func (r *Recorder) once(ctx context.Context) error {
	if r.Position() == 0 && !r.config.WatchList {
		if err := r.list(ctx, false); err != nil {
			return err
		}
	}
	return r.watch(ctx, r.Position())
}

// List makes one list beside the watch and records it.
func (r *Recorder) List(ctx context.Context) (uint64, error) {
	if err := r.list(ctx, true); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range slices.Backward(r.history) {
		if o.Kind == Listed && o.Aside {
			return o.Revision, nil
		}
	}
	return 0, errors.New("the recording is full")
}

func (r *Recorder) list(ctx context.Context, aside bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Silence)
	defer cancel()
	asked := time.Now()
	response, err := r.get(ctx, url.Values{})
	if err != nil {
		return r.failed(err)
	}
	defer response.Body.Close()
	revision, items, err := readList(response.Body, r.config.Protobuf)
	if err != nil {
		return r.failed(err)
	}
	r.record(Observation{Kind: Listed, Asked: asked, Revision: revision, Items: items, Aside: aside})
	return nil
}

// get returns a successful answer, or the refusal.
func (r *Recorder) get(ctx context.Context, query url.Values) (*http.Response, error) {
	u := *r.url
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	accept := typeJSON
	if r.config.Protobuf {
		accept = typeProtobuf
	}
	if query.Has("watch") {
		accept += ";stream=watch"
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", r.config.Agent)
	response, err := r.config.Client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read an answer with status %d: %w", response.StatusCode, err)
	}
	return nil, statusOf(response.StatusCode, body)
}

// failed records an error that ended a request, and returns it.
func (r *Recorder) failed(err error) error {
	kind := Failed
	if isExpired(err) {
		kind = Expired
	}
	r.record(Observation{Kind: kind, Err: err.Error()})
	return err
}

var errSilent = errors.New("silent for too long")

func (r *Recorder) watch(ctx context.Context, after uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(r.config.Silence, func() { cancel(errSilent) })
	defer silence.Stop()

	timeout := r.config.Timeout
	if timeout == 0 {
		timeout = 5*time.Minute + rand.N(5*time.Minute)
	}
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}}
	query.Set("timeoutSeconds", strconv.Itoa(max(1, int(timeout.Seconds()))))
	if after == 0 {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		query.Set("resourceVersion", strconv.FormatUint(after, 10))
	}
	asked := time.Now()
	response, err := r.get(ctx, query)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return r.failed(err)
	}
	defer response.Body.Close()
	r.record(Observation{Kind: Began, Asked: asked, Revision: after})
	next := newFrames(response.Body, r.config.Protobuf)
	for {
		f, err := next()
		if err == nil {
			silence.Reset(r.config.Silence)
			err = r.take(f)
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return r.over(err)
	}
}

// over records the end of a watch, and returns what broke it; nil means an orderly end.
func (r *Recorder) over(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		r.record(Observation{Kind: Ended})
		return nil
	case isExpired(err):
		return r.failed(err)
	default:
		r.record(Observation{Kind: Ended, Err: err.Error()})
		return err
	}
}

// take records one frame. An error ends the watch.
func (r *Recorder) take(f frame) error {
	if f.Type == string(watch.Error) {
		return statusOf(0, f.Object)
	}
	o, err := readObject(f.Object)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Type, err)
	}
	observation := Observation{Kind: Event, Type: watch.EventType(f.Type), Key: o.key, Revision: o.item.Revision, Item: o.item}
	switch observation.Type {
	case watch.Added, watch.Modified, watch.Deleted:
	case watch.Bookmark:
		observation = Observation{Kind: Bookmark, Revision: o.item.Revision}
		if o.endsInit {
			observation.Kind = Synced
		}
	default:
		return fmt.Errorf("a watch does not tell %q", f.Type)
	}
	r.record(observation)
	return nil
}

func (r *Recorder) record(o Observation) {
	o.At = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case o.Aside:
	case o.Kind == Listed, o.Kind == Synced:
		r.position = o.Revision
	case o.Kind == Event, o.Kind == Bookmark:
		// Before the end of the initial events there is nothing to resume from. And if a server goes back, so does this
		// client, as a reflector would.
		if r.position != 0 {
			r.position = o.Revision
		}
	case o.Kind == Expired:
		r.position = 0
	}
	close(r.grew)
	r.grew = make(chan struct{})
	if r.full {
		return
	}
	if r.size += 1 + len(o.Items); r.size > r.config.Limit {
		r.full = true
		o = Observation{Kind: Overflow, At: o.At}
	}
	r.history = append(r.history, o)
}

// History returns all observations so far.
func (r *Recorder) History() []Observation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history)
}

// Position returns the revision at which the recorder would resume; 0 means that it would begin again.
func (r *Recorder) Position() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position
}

// Wait returns when the recorder has reached a revision, or when ctx ends, with its cause. In a quiet cluster the recorder may
// learn that it has reached a revision only from a bookmark, which may take a minute.
func (r *Recorder) Wait(ctx context.Context, revision uint64) error {
	for {
		r.mu.Lock()
		position, grew := r.position, r.grew
		r.mu.Unlock()
		if position >= revision && position != 0 {
			return nil
		}
		select {
		case <-grew:
		case <-ctx.Done():
			return fmt.Errorf("the recorder of %s stands at revision %d, not yet at %d: %w", r.url.Path, position, revision,
				context.Cause(ctx))
		}
	}
}
