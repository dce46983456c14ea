package cache

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// prospect is the answer that a request can expect from a selection.
type prospect uint8

const (
	// open means that it is too early to tell.
	open prospect = iota
	// known means that the replica has the answer.
	known
	// foreign means that the cloud must answer. Either the hub no longer follows the selection, or the cloud can be reached and
	// may answer differently.
	foreign
	// unreachable means that the replica was never complete, and that the cloud cannot be reached.
	unreachable
	// late means that the request's time ran out before the prospect was certain.
	late
)

// situation is all that a prospect depends on.
type situation struct {
	// fresh says that the request wants the present state, because it is a get, a list, or a watch that begins with a list. A
	// watch from a revision wants the later events, whenever they come.
	fresh    bool
	complete bool // the replica is complete
	cloud    link.State
	feed     FeedStatus
	// node says that the hub reads the selection with the node's identity. The node's programs need not learn that the node's
	// certificate has expired. A caller must learn that its token has expired.
	node bool
}

// prospect returns the answer that the request can expect. For the present state, content from the disk alone is an answer only
// while the cloud can't be asked: its link is down, it does not answer, or it answers the node with 401. Otherwise that content
// is too uncertain, because it is as old as the hub's last contact with the cloud.
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

// smallObjects and smallBytes bound the selections that the hub lists anew when a client waits. A list takes one round trip. A
// resume of a larger selection costs less than its list, but takes half a second longer (quietTime).
const smallObjects, smallBytes = 100, 64 << 10

// small reports whether a list may replace a resume. A list makes all watches of the replica begin anew, so small allows no watch
// but the Saver's.
func (m *Member) small() bool {
	stats := m.Replica.Stats()
	return stats.Objects <= smallObjects && stats.ObjectBytes <= smallBytes && stats.Watchers <= 1 // the disk's
}

// patience is how long a request waits until its selection's prospect is certain.
const patience = 10 * time.Second

// expect waits until a member's prospect is certain, or until patience is over.
func (m *Member) expect(ctx context.Context, cloud *live.Value[link.State], fresh bool) prospect {
	timer := time.NewTimer(patience)
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
		// The pool lists the hub's own selections once: their resumed watch soon shows that nothing is missing.
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
