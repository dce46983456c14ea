package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// askTimeout bounds the question where the mirror stands, and each request for the Lease: both are small, on the LAN.
	askTimeout = 2 * time.Second
	// batchTimeout bounds a push of changes (1 MiB on the LAN), fullTimeout one of everything: on a LAN of 100 Mbit/s it
	// is enough for some 600 MB.
	batchTimeout = 10 * time.Second
	fullTimeout  = 60 * time.Second

	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 1 << 20
	// maxRetryAfter bounds what a Retry-After is believed.
	maxRetryAfter = time.Minute
	// buffered is about how much of a body is written out at a time, in bytes.
	buffered = 32 << 10
)

// errDeposed breaks off a body when the term is over.
var errDeposed = errors.New("the term is over")

// refusal is an answer other than 200.
type refusal struct {
	code       int
	message    string
	applied    edge.Revision // of a conflict: where the mirror stands
	retryAfter time.Duration
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the coordinator answers %d: %s", r.code, r.message)
}

// mirror is a coordinator's mirror, as its client.
type mirror struct {
	transport http.RoundTripper
	base      *url.URL
	term      Term
}

// positions are how far each resource in the mirror has come; one that is missing has nothing.
type positions struct {
	// instance is another one after each start of the coordinator.
	instance string
	applied  map[schema.GroupVersionResource]edge.Revision
}

// ask asks where the mirror stands.
func (m *mirror) ask(ctx context.Context) (positions, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base.JoinPath(edge.PathMirror).String(), http.NoBody)
	if err != nil {
		return positions{}, fmt.Errorf("ask where the mirror stands: %w", err)
	}
	var answer struct {
		Instance  string `json:"instance"`
		Resources []struct {
			Group, Version, Resource, Applied string
		} `json:"resources"`
	}
	if err := m.do(r, &answer); err != nil {
		return positions{}, fmt.Errorf("ask where the mirror stands: %w", err)
	}
	p := positions{answer.Instance, map[schema.GroupVersionResource]edge.Revision{}}
	for _, each := range answer.Resources {
		applied, err := position(each.Applied)
		if err != nil {
			return positions{}, fmt.Errorf("ask where the mirror stands: %w", err)
		}
		p.applied[schema.GroupVersionResource{Group: each.Group, Version: each.Version, Resource: each.Resource}] = applied
	}
	return p, nil
}

// position reads a revision, where 0 is none.
func position(text string) (edge.Revision, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the mirror's position %.40q is no number", text)
	}
	return edge.Revision(n), nil
}

// post pushes events that follow a revision, or everything if it is 0, and returns where the mirror stands then.
func (m *mirror) post(
	ctx context.Context, resource schema.GroupVersionResource, after edge.Revision, t stream.Type, events []stream.Event,
) (edge.Revision, error) {
	timeout, kind := fullTimeout, "everything"
	query := url.Values{"term": {strconv.FormatInt(int64(m.term.Transitions), 10)}}
	if after != 0 {
		timeout, kind = batchTimeout, fmt.Sprintf("%d changes after revision %s", len(events), after)
		query.Set("from", after.String())
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	group := resource.Group
	if group == "" {
		group = edge.MirrorCoreGroup
	}
	u := m.base.JoinPath(edge.PathMirror, group, resource.Version, resource.Resource)
	u.RawQuery = query.Encode()
	frames := func() (io.ReadCloser, error) { return newBody(m.term, t, events), nil }
	content, _ := frames()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), content)
	if err != nil {
		return 0, fmt.Errorf("push %s: %w", kind, err)
	}
	r.GetBody = frames
	r.Header.Set("Content-Type", t.Encoding.ContentType(true))
	if !m.term.Valid() {
		return 0, fmt.Errorf("push %s: %w", kind, errDeposed)
	}
	var answer struct{ Applied string }
	if err := m.do(r, &answer); err != nil {
		return 0, fmt.Errorf("push %s: %w", kind, err)
	}
	return position(answer.Applied)
}

// do makes a request and reads the answer, which is JSON.
func (m *mirror) do(r *http.Request, into any) error {
	r.Header.Set("Accept", "application/json")
	response, err := m.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
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
		return fmt.Errorf("the answer is not what a mirror says: %w", err)
	}
	return nil
}

// refusalOf reads an answer other than 200: a Status, or of a conflict where the mirror stands.
func refusalOf(response *http.Response, text []byte) *refusal {
	why := &refusal{code: response.StatusCode, message: http.StatusText(response.StatusCode)}
	var said struct{ Applied, Message string }
	if json.Unmarshal(text, &said) == nil {
		if said.Message != "" {
			why.message = said.Message
		}
		why.applied, _ = position(said.Applied)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		why.retryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return why
}

// body writes events out as frames while it is read: what is pushed is in memory once. It ends with an error, and the
// stream unfinished, when the term is over.
type body struct {
	term   Term
	events []stream.Event
	frames *stream.FrameWriter
	out    bytes.Buffer
}

func newBody(term Term, t stream.Type, events []stream.Event) *body {
	b := &body{term: term, events: events}
	b.frames = stream.NewFrameWriter(&b.out, t)
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.out.Len() == 0 {
		b.out.Reset()
		for len(b.events) > 0 && b.out.Len() < buffered {
			if err := b.frames.Write(b.events[0]); err != nil {
				return 0, fmt.Errorf("write %s %s: %w", b.events[0].Type, b.events[0].Object.Key, err)
			}
			b.events = b.events[1:]
		}
	}
	if !b.term.Valid() {
		return 0, errDeposed
	}
	return b.out.Read(p) // io.EOF when all is out
}

// Close implements io.Closer.
func (*body) Close() error { return nil }
