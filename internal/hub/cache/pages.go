package cache

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/stream"
)

const (
	// firstPage is how many objects the first page of a list has: of EndpointSlices with 50 endpoints each some 130 KB on the
	// wire, 8 s at 128 kbit/s.
	firstPage = 128
	// pageTime is how long a page should take by what the one before took: this much is lost at most when a list breaks off. On a
	// good link it makes the second page the last one.
	pageTime = 5 * time.Second
	// leastPage is how large a page should be at least, in bytes not compressed: API servers compress nothing below 128 KiB.
	leastPage = 192 << 10
	// mostPage bounds a page, in objects.
	mostPage = 10_000
	// keepPages is how long pages wait for the rest of their list. By then API servers have mostly forgotten the revision.
	keepPages = 10 * time.Minute
)

// Pages gives a list in parts; remote.Source does.
type Pages interface {
	// Page reads up to limit objects from where a part before has ended (empty: from the beginning), and returns where the next
	// part begins; empty means that this was the last one. All parts are of one revision. It fails with stream.ErrExpired when
	// the source no longer remembers that revision.
	Page(ctx context.Context, limit int, from string) (part stream.Snapshot, rest string, err error)
}

// pages are the part of a list that has come.
type pages struct {
	content stream.Snapshot
	rest    string // where it goes on
	count   int
	limit   int // of the next page
	clock   ends.Clock
}

// newPages returns pages of which none has come. limit is what the last list came to, 0 if there was none: a first page that is
// too large for a line would break off for ever.
func newPages(limit int, clock ends.Clock) *pages {
	if limit == 0 {
		limit = firstPage
	}
	return &pages{limit: limit, clock: clock}
}

// read reads the rest of the list, and tells which page is under way. After an error p holds the pages that have come, and read
// may be called again.
func (p *pages) read(ctx context.Context, from Pages, under *atomic.Int64) error {
	for p.count == 0 || p.rest != "" {
		under.Store(int64(p.count) + 1)
		asked := p.clock.Running()
		part, rest, err := from.Page(ctx, p.limit, p.rest)
		if err != nil {
			p.limit = max(p.limit/2, 1) // the line may have become slow, or be up only briefly
			return err
		}
		size := 0
		for _, o := range part.Objects {
			size += len(o.Raw)
		}
		p.limit = pageAfter(len(part.Objects), size, p.clock.Since(asked))
		if err := p.content.Extend(part); err != nil {
			return errors.Join(stream.ErrExpired, err)
		}
		p.rest, p.count = rest, p.count+1
	}
	return p.content.Complete()
}

// pageAfter returns how many objects the next page has, after one of so many objects and bytes took a time.
func pageAfter(objects, bytes int, took time.Duration) int {
	if objects == 0 {
		return firstPage
	}
	fits := float64(objects) * float64(pageTime) / float64(max(took, time.Millisecond))
	least := float64(objects) * leastPage / float64(max(bytes, 1))
	return int(min(max(fits, least, 1), mostPage))
}

// kept is what a Machine knows of the pages of a list that broke off.
type kept struct {
	history  edge.History  // in which the list was begun
	position edge.Revision // of the sink then
	until    time.Time     // they wait for the rest; zero means that there are none
}

// continues reports whether a list that ended with err may go on from its last page. The server's own answers say that it may
// not: the revision is forgotten, or something has changed. That it is busy, or could not be reached, says nothing.
func continues(err error) bool {
	switch answered(err) {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err != nil && !errors.Is(err, stream.ErrExpired) && !errors.Is(err, errDoubtful)
	}
	return false
}

// keep takes in how many pages a list that has ended has left.
func (m *Machine) keep(e Event, a Attempt, o Ended) {
	switch {
	case o.Pages == 0 || !continues(o.Err):
		m.kept = kept{}
	case o.Progress || m.kept.until.IsZero():
		m.kept = kept{history: a.History, position: e.Position, until: e.At.Add(keepPages)}
	}
	m.whole = a.Pages && errors.Is(o.Err, stream.ErrExpired)
}

// keeps reports whether pages wait for the rest of their list.
func (m *Machine) keeps(e Event) bool {
	return e.At.Before(m.kept.until) && m.kept.history == m.looked.History.Number && m.kept.position == e.Position
}
