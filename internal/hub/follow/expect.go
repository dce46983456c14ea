package follow

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// prospect is what can be expected of a selection.
type prospect uint8

const (
	// open: it can't be told yet.
	open prospect = iota
	// known: the replica has the answer.
	known
	// foreign: it is the cloud's to answer, which can be reached and has something else to say than the replica; or nothing is
	// followed any longer.
	foreign
	// unreachable: it was never complete, and the cloud cannot be reached.
	unreachable
	// late: neither has shown within the time.
	late
)

// situation is what a prospect follows from.
type situation struct {
	// fresh says that what is asked for is what is so now, or lately: a list, or a watch that begins with one. A watch that
	// goes on from a revision is told what comes, whenever that is.
	fresh    bool
	complete bool // the replica is
	cloud    link.State
	feed     feed.Status
	// node says that it is read with the node's identity. Its programs know nothing of a certificate that has expired; others
	// are to hear of their token.
	node bool
}

// prospect says what can be expected. What only the disk has said is an answer where the cloud can't be asked: it is down,
// or was tried and fails, or does not know the node. Otherwise it may be as old as the last time that somebody looked.
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

// smallObjects and smallBytes say what is listed at once when somebody waits for it: one round trip, as without a hub. A
// resume of what is larger costs less, and half a second more.
const smallObjects, smallBytes = 100, 64 << 10

// small reports whether what there is may be listed where a resume would do. Whoever watches it would have to begin anew.
func (m *Member) small() bool {
	stats := m.Replica.Stats()
	return stats.Objects <= smallObjects && stats.ObjectBytes <= smallBytes && stats.Watchers <= 1 // the disk's
}

// expect waits until it is known what can be expected of a member.
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
		// What the hub follows for itself is listed once for a pool: its watch, resumed, says soon that nothing is missing.
		if complete && state == link.Up && !m.fixed() && m.small() {
			m.feed.Refresh()
		}
		select {
		case <-completed:
		case <-linked:
		case <-told:
		case <-m.ended:
			return foreign
		case <-timer.C:
			if complete && state == link.Up {
				return foreign // it takes long, and the cloud can say it
			}
			return late
		case <-ctx.Done():
			return late
		}
	}
}

// asksForNow reports whether a list or watch is to be answered with what is so now.
func asksForNow(r *http.Request, verb string) bool {
	query := r.URL.Query()
	if initial, err := strconv.ParseBool(query.Get("sendInitialEvents")); err == nil && initial {
		return true
	}
	revision := query.Get("resourceVersion")
	return verb != "watch" || revision == "" || revision == "0"
}
