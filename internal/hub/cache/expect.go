package cache

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// prospect says what answer can be expected from a selection.
type prospect uint8

const (
	// open: it is too early to tell.
	open prospect = iota
	// known: the replica has the answer.
	known
	// foreign: the cloud must answer, because it can be reached and has something else to say than the replica, or because the
	// selection is no longer followed.
	foreign
	// unreachable: the replica was never complete, and the cloud cannot be reached.
	unreachable
	// late: the time was up before one of these was certain.
	late
)

// situation is all that a prospect depends on.
type situation struct {
	// fresh says that the request wants the present state: a list, or a watch that begins with one. A watch that goes on from
	// a revision hears what comes, whenever that is.
	fresh    bool
	complete bool // the replica is complete
	cloud    link.State
	feed     FeedStatus
	// node says that the selection is read with the node's identity. The node's programs need not learn that its certificate
	// has expired; other callers must learn that their token has.
	node bool
}

// prospect says what can be expected. Content that only the disk vouches for is an answer if the cloud cannot be asked: it is
// down, was tried and fails, or does not know the node. Otherwise that content is too uncertain: it is as old as the last time
// that somebody looked.
func (s situation) prospect() prospect {
	reached, failing := s.cloud.Reachable(), s.cloud == link.Failing || s.feed.Failing
	switch {
	case reached && s.feed.Denied, reached && s.feed.Stranger && !s.node:
		return foreign
	case s.complete && (!s.fresh || s.feed.Fresh || s.cloud == link.Down || failing || s.feed.Stranger):
		return known
	case s.complete:
		return open
	case reached && s.feed.Refused != "":
		return foreign
	case s.cloud == link.Down:
		return unreachable
	default:
		return open
	}
}

// smallObjects and smallBytes bound what is listed at once when somebody waits for it: that takes one round trip, as without a
// hub. For larger selections a resume costs less, but takes half a second longer.
const smallObjects, smallBytes = 100, 64 << 10

// small reports whether the selection may be listed where a resume would do. With a list, everybody who watches it would have
// to begin anew, so nobody but the disk may watch it.
func (m *Member) small() bool {
	stats := m.Replica.Stats()
	return stats.Objects <= smallObjects && stats.ObjectBytes <= smallBytes && stats.Watchers <= 1 // the disk's
}

// expect waits until a member's prospect is certain, or the time is up.
func (m *Member) expect(ctx context.Context, cloud *live.Value[link.State], wait time.Duration, fresh bool) prospect {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-m.restored:
	case <-timer.C:
		return late
	case <-ctx.Done():
		return late
	}
	for {
		complete, completed := m.Replica.Complete().Watch()
		state, linked := cloud.Watch()
		status, told := m.feed.Status().Watch()
		now := situation{fresh: fresh, complete: complete, cloud: state, feed: status, node: m.Client == "" || m.fixed()}
		if p := now.prospect(); p != open {
			return p
		}
		// The hub's own selections are listed once for a pool: their resumed watch soon shows that nothing is missing.
		if complete && state.Answers() && !m.fixed() && m.small() {
			m.feed.Refresh()
		}
		select {
		case <-completed:
		case <-linked:
		case <-told:
		case <-m.ended:
			return foreign
		case <-timer.C:
			if complete && state.Answers() {
				return foreign // the feed takes long, and the cloud can answer
			}
			return late
		case <-ctx.Done():
			return late
		}
	}
}

// asksForNow reports whether a list or watch wants the present state.
func asksForNow(r *http.Request, verb string) bool {
	query := r.URL.Query()
	if initial, err := strconv.ParseBool(query.Get("sendInitialEvents")); err == nil && initial {
		return true
	}
	revision := query.Get("resourceVersion")
	return verb != "watch" || revision == "" || revision == "0"
}
