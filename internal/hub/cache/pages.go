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
	// firstPage is how many objects the first page of a list has. A page of so many EndpointSlices with 50 endpoints each is some
	// 130 KB on the wire, and takes 8 s at 128 kbit/s.
	firstPage = 128
	// pageTime is how long a page should take. The time that the last page took decides the size of the next one. A list that
	// breaks off loses about one page.
	pageTime = 5 * time.Second
	// leastPage is the least size of a page in uncompressed bytes: API servers compress nothing below 128 KiB.
	leastPage = 192 << 10
	// mostPage bounds a page, in objects.
	mostPage = 10_000
	// keepPages is how long pages wait for the rest of their list. After that API servers have mostly forgotten the revision.
	keepPages = 10 * time.Minute
)

// Pages reads a list in parts; remote.Source does.
type Pages interface {
	// Page reads up to limit objects, beginning at from; empty means at the first object. It returns in rest where the next part
	// begins; empty means that this part was the last. All parts are of one revision. Page fails with stream.ErrExpired if the
	// source has forgotten that revision.
	Page(ctx context.Context, limit int, from string) (part stream.Snapshot, rest string, err error)
}

// pages are the pages of a list that have come.
type pages struct {
	content stream.Snapshot
	rest    string // where it goes on
	count   int
	limit   int // of the next page
	clock   ends.Clock
}

// newPages returns the state of a list of which no page has come. limit is the page size that the last list had reached, because
// a first page too large for the line would break off every time; 0 means that there was no list.
func newPages(limit int, clock ends.Clock) *pages {
	if limit == 0 {
		limit = firstPage
	}
	return &pages{limit: limit, clock: clock}
}

// read reads the rest of the list. It stores the number of the page under way in the parameter under. After an error p keeps
// its pages, and read may be called again.
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

// pageAfter returns the size of the next page in objects, given the objects, bytes and duration of the last one.
func pageAfter(objects, bytes int, took time.Duration) int {
	if objects == 0 {
		return firstPage
	}
	fits := float64(objects) * float64(pageTime) / float64(max(took, time.Millisecond))
	least := float64(objects) * leastPage / float64(max(bytes, 1))
	return int(min(max(fits, least, 1), mostPage))
}

// kept describes the pages of a list that broke off, for the Machine.
type kept struct {
	history  edge.History // the history in which the list began, and its floor at that time
	floor    edge.Revision
	position edge.Revision // the sink's at that time
	until    time.Time     // until when the pages wait for the rest of their list; zero means that there are no pages
}

// continues reports whether a list that ended with err may continue after its last page. It may if the server was busy or out of
// reach, and after no other error.
func continues(err error) bool {
	switch answered(err) {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err != nil && !errors.Is(err, stream.ErrExpired) && !errors.Is(err, errDoubtful)
	}
	return false
}

// keep records how many pages an ended list has left behind.
func (m *Machine) keep(e Event, a Attempt, o Ended) {
	switch {
	case o.Pages == 0 || !continues(o.Err):
		m.kept = kept{}
	case o.Progress || m.kept.until.IsZero():
		m.kept = kept{history: a.History, floor: a.Floor, position: e.Position, until: e.At.Add(keepPages)}
	}
	m.whole = a.Pages && errors.Is(o.Err, stream.ErrExpired)
}

// keeps reports whether pages wait for the rest of their list.
func (m *Machine) keeps(e Event) bool {
	is := m.looked.History
	return e.At.Before(m.kept.until) && m.kept.history == is.Number && m.kept.floor == is.Floor && m.kept.position == e.Position
}
