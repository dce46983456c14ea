package share

import (
	"bufio"
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
	// askTimeout bounds the question for the mirror's position, and each request for the Lease: both are small, on the LAN.
	askTimeout = 2 * time.Second
	// batchTimeout bounds how long a batch of changes (1 MiB on the LAN) waits for its acknowledgement. fullTimeout bounds a full
	// push: on a LAN of 100 Mbit/s it is enough for some 600 MB.
	batchTimeout = 10 * time.Second
	fullTimeout  = 60 * time.Second

	// buffered is about how much of a body is written out at a time, in bytes.
	buffered = 32 << 10
)

// errDeposed breaks off a body when the term is over.
var errDeposed = errors.New("the term is over")

// mirrorClient reads the positions of a coordinator's mirror, and pushes to it.
type mirrorClient struct {
	client
	term edge.Term
}

// positions are the revisions of the resources in the mirror. A missing resource is empty.
type positions struct {
	// instance changes with each start of the coordinator.
	instance string
	applied  map[schema.GroupVersionResource]edge.Revision
	history  map[schema.GroupVersionResource]edge.History // that applied counts in
}

// in returns the history of a resource in the mirror, or pushed if the mirror does not have the resource.
func (p positions) in(r schema.GroupVersionResource, pushed edge.History) edge.History {
	if h, said := p.history[r]; said {
		return h
	}
	return pushed
}

// positions returns the mirror's positions.
func (m *mirrorClient) positions(ctx context.Context) (positions, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var answer struct {
		Instance  string
		Resources []struct {
			Group, Version, Resource string

			Applied edge.Revision `json:",string"`
			History edge.History  `json:",string"`
			Filled  bool
		}
	}
	r, err := m.request(ctx, http.MethodGet, nil, http.NoBody, edge.PathMirror)
	if err == nil {
		_, err = m.do(r, &answer)
	}
	if err != nil {
		return positions{}, fmt.Errorf("ask where the mirror stands: %w", err)
	}
	p := positions{
		answer.Instance, map[schema.GroupVersionResource]edge.Revision{}, map[schema.GroupVersionResource]edge.History{},
	}
	for _, each := range answer.Resources {
		r := schema.GroupVersionResource{Group: each.Group, Version: each.Version, Resource: each.Resource}
		p.applied[r], p.history[r] = each.Applied, each.History
		if each.Filled {
			p.history[r] = each.History.Filled()
		}
	}
	return p, nil
}

// everything pushes a replica's whole content, of one history, and returns the mirror's new position.
func (m *mirrorClient) everything(
	ctx context.Context, resource schema.GroupVersionResource, in edge.History, t stream.Type, events []stream.Event,
) (edge.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, fullTimeout)
	defer cancel()
	frames := func() *body { return newBody(ctx, m.term, t, events, nil) }
	r, err := m.pushOf(ctx, resource, in, 0, t, frames())
	if err != nil {
		return 0, fmt.Errorf("push everything: %w", err)
	}
	r.GetBody = func() (io.ReadCloser, error) { return frames(), nil }
	var answer said
	if _, err := m.do(r, &answer); err != nil {
		return 0, fmt.Errorf("push everything: %w", err)
	}
	return answer.Applied, nil
}

// changes pushes batches of changes until an error. The first batch follows the revision after. After each batch it sends the
// mirror's new position to applied.
func (m *mirrorClient) changes(
	ctx context.Context, resource schema.GroupVersionResource, in edge.History, after edge.Revision, t stream.Type,
	batches <-chan []stream.Event, applied chan<- edge.Revision,
) error {
	err := m.follow(ctx, resource, in, after, t, batches, applied)
	return fmt.Errorf("push changes after revision %s: %w", after, err)
}

func (m *mirrorClient) follow(
	ctx context.Context, resource schema.GroupVersionResource, in edge.History, after edge.Revision, t stream.Type,
	batches <-chan []stream.Event, applied chan<- edge.Revision,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := m.pushOf(ctx, resource, in, after, t, newBody(ctx, m.term, t, nil, batches))
	if err != nil {
		return err
	}
	response, err := m.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	defer cancel() // before Close, which waits for our body to end
	if response.StatusCode != http.StatusOK {
		return readAnswer(response, nil)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		var line said
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("the answer is not what a mirror says: %w", err)
		}
		if line.Code != 0 {
			return newRefusal(line.Code, line.Message, line.Details.RetryAfterSeconds)
		}
		select {
		case applied <- line.Applied:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return errors.New("the coordinator has ended its answer")
}

// pushOf returns the request of a push: of what follows the revision after, or of everything if after is 0.
func (m *mirrorClient) pushOf(
	ctx context.Context, resource schema.GroupVersionResource, in edge.History, after edge.Revision, t stream.Type,
	content *body,
) (*http.Request, error) {
	if !m.term.Valid() {
		return nil, errDeposed
	}
	query := url.Values{"term": {strconv.FormatInt(int64(m.term.Transitions), 10)}}
	if after != 0 {
		query.Set("from", after.String())
	}
	group := resource.Group
	if group == "" {
		group = edge.MirrorCoreGroup
	}
	r, err := m.request(ctx, http.MethodPost, query, content, edge.PathMirror, group, resource.Version, resource.Resource)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", t.Encoding.ContentType(true))
	r.Header.Set(edge.HeaderHistory, in.String())
	return r, nil
}

// said is one line of the mirror's answer to a push: an acknowledgement or, as the last line, a Status.
type said struct {
	Applied edge.Revision `json:",string"`
	Code    int
	Message string
	Details struct{ RetryAfterSeconds int }
}

// body encodes events as frames while it is read, so that what is pushed is in memory only once. When the term is over, it ends
// with an error and leaves the stream unfinished.
type body struct {
	ctx    context.Context
	term   edge.Term
	events []stream.Event
	more   <-chan []stream.Event // nil: that is all
	frames *stream.FrameWriter
	out    bytes.Buffer
}

func newBody(ctx context.Context, term edge.Term, t stream.Type, events []stream.Event, more <-chan []stream.Event) *body {
	b := &body{ctx: ctx, term: term, events: events, more: more}
	b.frames = stream.NewFrameWriter(&b.out, t)
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.out.Len() == 0 {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	if !b.term.Valid() {
		return 0, errDeposed
	}
	return b.out.Read(p) // io.EOF when all is out
}

// fill encodes the next events, and waits for them if more may come.
func (b *body) fill() error {
	b.out.Reset()
	if b.out.Cap() > 4*buffered { // one huge object must not cost its size for ever
		b.out = bytes.Buffer{}
	}
	if len(b.events) == 0 && b.more != nil {
		select {
		case b.events = <-b.more:
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	}
	for len(b.events) > 0 && b.out.Len() < buffered {
		if err := b.frames.Write(b.events[0]); err != nil {
			return fmt.Errorf("write %s %s: %w", b.events[0].Type, b.events[0].Object.Key, err)
		}
		b.events = b.events[1:]
	}
	return nil
}

// Close implements io.Closer.
func (*body) Close() error { return nil }
