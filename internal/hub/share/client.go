package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// lookEvery is how often to look, without I/O, for something to push or to declare.
	lookEvery = 250 * time.Millisecond
	// maxEvents bounds a push of changes, which has at least one event.
	maxEvents = 256

	// backoffMin and backoffMax bound the pause after a failure; see run.Backoff.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second

	// hopelessPause is the pause after a refusal that waiting seldom changes.
	hopelessPause = 30 * time.Second

	// askTimeout bounds each small request to the coordinator: for the state of a share, or about a Lease.
	askTimeout = 2 * time.Second
	// maxAnswer bounds an answer, or each line of a streamed answer, in bytes. The longest answer lists a node's objects at the
	// coordinator, 2000 at most.
	maxAnswer = 2 << 20
	// maxRetryAfter bounds a Retry-After.
	maxRetryAfter = time.Minute
)

// Config holds what a Pool, a Filler and a Node have in common. All fields are required unless they say otherwise.
type Config struct {
	// Node is this hub's node.
	Node edge.NodeName
	// Transport makes requests with this node's certificate, as upstream.Upstream.AsHub does. Base is the coordinator's address,
	// without a path.
	Transport http.RoundTripper
	Base      *url.URL
	// Later tells the hub of a history that the coordinator names. It reports whether the hub is afterwards in that history or in
	// a later one.
	Later func(edge.History) bool
	// Metrics registers the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// refusal is an answer other than 200, or the line with which a coordinator ends a streamed answer.
type refusal struct {
	code       int
	message    string
	retryAfter time.Duration
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the coordinator answers %d: %s", r.code, r.message)
}

// said is a refusal as a coordinator says it.
type said struct {
	Code    int
	Message string
	Details struct{ RetryAfterSeconds int }
}

// client asks where a share stands at a coordinator, and pushes to it.
type client struct {
	transport http.RoundTripper
	base      *url.URL // of the share
}

// client returns a client of the share at a path.
func (c *Config) client(share string) client { return client{c.Transport, c.Base.JoinPath(share)} }

// request returns a request for a JSON answer. The caller adds further headers.
func (c client) request(
	ctx context.Context, method string, query url.Values, body io.Reader, path ...string,
) (*http.Request, error) {
	u := c.base.JoinPath(path...)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	return r, nil
}

// state asks the coordinator for the state of the share (client), and decodes the answer into the parameter into. It returns the
// answer's ETag; "" means that the answer has none. If the state still has the ETag in the parameter known, state fails with a
// refusal of code 304.
func (c client) state(ctx context.Context, known string, into any) (tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := c.request(ctx, http.MethodGet, nil, http.NoBody)
	if err != nil {
		return "", err
	}
	if known != "" {
		r.Header.Set("If-None-Match", known)
	}
	return c.do(r, into)
}

// do sends a request and decodes the answer. It also returns the answer's ETag, empty if the answer has none.
func (c client) do(r *http.Request, into any) (tag string, err error) {
	response, err := c.transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	return response.Header.Get("ETag"), readAnswer(response, into)
}

// readAnswer reads and decodes a whole answer.
func readAnswer(response *http.Response, into any) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAnswer:
		return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case response.StatusCode != http.StatusOK:
		return refusalOf(response, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer is not what a coordinator says: %w", err)
	}
	return nil
}

// refusalOf decodes an answer other than 200.
func refusalOf(response *http.Response, text []byte) *refusal {
	var s said
	_ = json.Unmarshal(text, &s) // proxies answer with text
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil {
		seconds = 0
	}
	return newRefusal(response.StatusCode, s.Message, seconds)
}

func newRefusal(code int, message string, retryAfter int) *refusal {
	if message == "" {
		message = http.StatusText(code)
	}
	seconds := min(max(retryAfter, 0), int(maxRetryAfter.Seconds()))
	return &refusal{code, message, time.Duration(seconds) * time.Second}
}

// again calls the function round until ctx ends, and pauses after each call. Each call ends with an error and says whether it
// made progress. The function judge returns the pause, given the error and the number of errors since the last progress.
func again(
	ctx context.Context, what string, failed prometheus.Counter,
	round func(context.Context) (progress bool, err error), judge func(err error, n int) time.Duration,
) {
	failures, logged := 0, ""
	for {
		progress, err := round(ctx)
		if ctx.Err() != nil {
			return
		}
		if progress {
			failures, logged = 0, ""
		}
		failures++
		failed.Inc()
		pause := judge(err, failures)
		if text := err.Error(); text != logged && pause > 0 {
			logged = text
			klog.FromContext(ctx).Info(what+" begins again", "pause", pause.Round(time.Millisecond), "err", err)
		}
		_ = run.Pause(ctx, pause)
	}
}

// backoff returns the pause after the n-th failure in a row.
func (c *Config) backoff(n int) time.Duration {
	return run.Backoff{Min: backoffMin, Max: backoffMax}.After(n, c.Ends.Float64())
}

// pauseAfter returns the pause after an error, the n-th in a row.
func (c *Config) pauseAfter(err error, n int) time.Duration {
	pause, why := c.backoff(n), (*refusal)(nil)
	switch {
	case !errors.As(err, &why):
		return pause
	case why.retryAfter > 0:
		return max(pause, why.retryAfter)
	}
	switch why.code {
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestTimeout:
		if n == 1 {
			return 0 // the share stands elsewhere, or the push was too slow
		}
	case http.StatusForbidden:
		return max(pause, time.Second) // another leads, or the coordinator has not heard yet what this hub may do
	default:
		if why.code < http.StatusInternalServerError {
			return hopelessPause/2 + c.Ends.Below(hopelessPause/2)
		}
	}
	return pause
}

// bell signals a change. Several rings before the receiver looks count as one.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default: // it is ringing
	}
}
