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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// batchTimeout bounds the wait for the acknowledgement of a batch of changes, as a rule 1 MiB at most. fullTimeout bounds a
	// push of everything; on a LAN of 100 Mbit/s it suffices for some 600 MB.
	batchTimeout = 10 * time.Second
	fullTimeout  = 60 * time.Second

	// buffered is about how much of a body is written out at a time, in bytes.
	buffered = 32 << 10
)

var (
	// errDeposed breaks off a body when the term is over.
	errDeposed = errors.New("the term is over")
	// errMoved says that the share's state after a push is not the expected one.
	errMoved = errors.New("the coordinator stands elsewhere")
)

// push is what a request brings to a share.
type push struct {
	resource schema.GroupVersionResource
	in       edge.History // of all its revisions
	from     string       // the state that it follows on from; empty means that it brings everything
	term     edge.Term    // under which it is brought; the zero Term means that it needs none
	local    bool         // the objects are as the node says
	of       stream.Type
	events   []stream.Event // none if batches are sent
}

// push makes a push of one batch.
func (c client) push(ctx context.Context, p push) (taken edge.Taken, err error) {
	frames := func() *body { return newBody(ctx, p.term, p.of, p.events, nil) }
	r, err := c.pushOf(ctx, p, frames())
	if err != nil {
		return taken, err
	}
	r.GetBody = func() (io.ReadCloser, error) { return frames(), nil }
	_, err = c.do(r, &taken)
	return taken, err
}

func (c client) pushOf(ctx context.Context, p push, content *body) (*http.Request, error) {
	query := url.Values{}
	if p.term.Valid != nil {
		if !p.term.Valid() {
			return nil, errDeposed
		}
		query.Set(edge.QueryTerm, strconv.FormatInt(int64(p.term.Transitions), 10))
	}
	if p.from != "" {
		query.Set(edge.QueryFrom, p.from)
	}
	if p.local {
		query.Set(edge.QueryLocal, "true")
	}
	group := p.resource.Group
	if group == "" {
		group = edge.CoreGroup
	}
	r, err := c.request(ctx, http.MethodPost, query, content, group, p.resource.Version, p.resource.Resource)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", p.of.Encoding.ContentType(true))
	r.Header.Set(edge.HeaderHistory, p.in.String())
	return r, nil
}

// following is one long request that pushes batch after batch. Only one goroutine may call send.
type following struct {
	// ctx ends with the push, for its reason.
	ctx   context.Context
	stop  context.CancelCauseFunc
	out   chan []stream.Event // a batch on its way; capacity 1
	told  chan edge.Taken     // the answer to each
	owned sync.WaitGroup
}

// follow begins a push that lasts until it fails, or until end is called.
func (c client) follow(ctx context.Context, p push) *following {
	f := &following{out: make(chan []stream.Event, 1), told: make(chan edge.Taken)}
	f.ctx, f.stop = context.WithCancelCause(ctx)
	f.owned.Go(func() { f.stop(fmt.Errorf("push changes after revision %s: %w", p.from, f.run(c, p))) })
	return f
}

// end ends the push, and waits for its goroutine.
func (f *following) end() {
	f.stop(context.Canceled)
	f.owned.Wait()
}

// send sends a batch and waits for the answer.
func (f *following) send(batch []stream.Event) (taken edge.Taken, err error) {
	select {
	case f.out <- batch:
	default:
		return taken, fmt.Errorf("%w: it acknowledged what it was not sent", errMoved)
	}
	timer := time.NewTimer(batchTimeout)
	defer timer.Stop()
	select {
	case taken = <-f.told:
		return taken, nil
	case <-timer.C:
		return taken, fmt.Errorf("no acknowledgement of a push for %s", batchTimeout)
	case <-f.ctx.Done():
		return taken, context.Cause(f.ctx)
	}
}

// run makes the request, and passes on its answers until an error.
func (f *following) run(c client, p push) error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	r, err := c.pushOf(ctx, p, newBody(ctx, p.term, p.of, nil, f.out))
	if err != nil {
		return err
	}
	response, err := c.transport.RoundTrip(r)
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
		var line struct {
			edge.Taken
			said
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("the answer is not what a coordinator says: %w", err)
		}
		if line.Code != 0 {
			return newRefusal(line.Code, line.Message, line.Details.RetryAfterSeconds)
		}
		select {
		case f.told <- line.Taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return errors.New("the coordinator has ended its answer")
}

// body is a request's body that encodes events while it is read, so that the content is in memory only once. When the term is
// over, reading fails, and the stream stays unfinished.
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
	if b.term.Valid != nil && !b.term.Valid() {
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
