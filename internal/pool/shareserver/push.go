package shareserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

// pushed is a push to the mirror, with the batch that is read: it is read to its end and then applied as a whole.
type pushed struct {
	to       *mirrored
	clock    ends.Clock
	history  edge.History // in which all its revisions count
	encoding stream.Encoding
	// take reserves memory, and give returns it. The error is a refusal.
	take func(bytes int64) error
	give func(bytes int64)
	// holds returns why its pusher must not push now; nil means that it may.
	holds func(ctx context.Context) error

	from  edge.Revision // 0 means a push of everything
	taken int64
	batch
}

// batch is what is applied at once.
type batch struct {
	typ      stream.Type
	events   []stream.Event  // changes in order, with a bookmark at the end
	snapshot []stream.Object // everything, sorted by key
	marked   bool            // the snapshot is complete
	revision edge.Revision   // its last revision
}

// begin checks who leads, or fills, before a batch is read; apply does so again.
func (m *Mirror) begin(r *http.Request, is *push) (taker, error) {
	term, err := strconv.ParseInt(is.query.Get(edge.QueryTerm), 10, 32)
	if err != nil {
		return nil, exchange.Refused(http.StatusBadRequest, "term must be the leaseTransitions of the Lease %s under which the "+
			"caller leads, or of %s", edge.LeaseElection, edge.LeaseFiller)
	}
	may := m.leads
	if is.history.IsFilled() {
		may = m.fills
	}
	p := &pushed{
		clock: m.clock, history: is.history, encoding: is.encoding, take: m.reserve, give: m.give,
		holds: func(ctx context.Context) error { return may(ctx, is.node, int32(term)) },
	}
	if err := p.holds(r.Context()); err != nil {
		return nil, err
	}
	if is.lasts = is.query.Has(edge.QueryFrom); is.lasts {
		if p.from, err = edge.ParseRevision(is.query.Get(edge.QueryFrom)); err != nil {
			return nil, exchange.Refused(http.StatusBadRequest, "from: %v; leave it out to push everything", err)
		}
	}
	if is.lasts && is.history.IsFilled() {
		return nil, exchange.Refused(http.StatusUnprocessableEntity, "a filler pushes everything, not changes")
	}
	if p.to, err = m.getOrMake(is.resource); err != nil {
		return nil, err
	}
	// Checked before reading, so that nobody sends what will be refused.
	if at := p.to.Position(); is.lasts && p.from != at {
		return nil, notThere(p.from, at)
	}
	p.revision = p.from
	return p, nil
}

// event implements taker.
func (p *pushed) event(e stream.Event, _ stream.Type) (last bool, err error) {
	return e.Type == stream.Bookmark, p.to.readEvent(p, e)
}

// apply implements taker.
func (p *pushed) apply(ctx context.Context, t stream.Type) (edge.Taken, error) {
	defer p.end()
	if p.from != 0 && len(p.events) == 0 {
		return edge.Taken{}, io.EOF
	}
	if err := p.to.check(p, t); err != nil {
		return edge.Taken{}, err
	}
	at, err := p.to.apply(ctx, p, p.clock.Running())
	if err != nil {
		return edge.Taken{}, err
	}
	p.from, p.batch = at, batch{revision: at}
	return edge.Taken{Applied: at.String()}, nil
}

// end implements taker.
func (p *pushed) end() {
	p.give(p.taken)
	p.taken = 0
}

func notThere(from, at edge.Revision) error {
	return &exchange.Refusal{
		Code: http.StatusConflict, Applied: &at,
		Message: fmt.Sprintf("the mirror is at revision %d, not %d: push what follows that, or everything", at, from),
	}
}
